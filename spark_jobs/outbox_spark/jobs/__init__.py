"""Load jobs from a job file or a pipeline file. Each job materializes one topic as one table."""

from __future__ import annotations

from collections.abc import Callable

from outbox_events.errors import ConfigurationError
from outbox_spark.jobs.model import MaterializeJob


def pipeline_loader() -> Callable[..., list[MaterializeJob]]:
    """Import and return from_pipeline.load_jobs. A driver that reads a job file does not need this import.

    Raises ConfigurationError if outbox_kit or one of its packages is missing.
    """
    try:
        from outbox_spark.jobs.from_pipeline import load_jobs  # noqa: PLC0415
    except ImportError as error:
        message = f"reading a pipeline file requires the Python package {error.name}"
        hint = "install outbox-kit (docs/releasing.md), or use a job file with --job"
        raise ConfigurationError(message, hint) from error
    return load_jobs
