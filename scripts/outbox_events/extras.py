"""Errors for imports that need a package of an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "confluent_kafka": "outbox-events[kafka]",
    "rbloom": "outbox-events[kafka]",
    "fastavro": "outbox-events[avro]",
    "requests": "outbox-events[avro]",
    "sqlalchemy": "outbox-events[sqlalchemy]",
}
"""The extra that installs a package."""


class MissingExtraError(ImportError):
    """A package is not installed that an extra contains."""


@contextmanager
def extra(requirement: str = "") -> Iterator[None]:
    """Raise MissingExtraError, which names the extra, if an import in the block does not find a package.

    `requirement` is the distribution with its extra; without it, the extra of EXTRAS.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        requirement = requirement or EXTRAS.get(package, "")
        if not package or package.startswith("outbox_") or not requirement:
            raise
        command = f"pip install '/path/to/{requirement}'"
        message = f"{package} is not installed: `{command}` (a checkout, or the wheel of a release) installs it"
        raise MissingExtraError(message, name=package) from error
