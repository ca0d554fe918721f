"""Errors for imports of packages that belong to an extra."""

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
"""Extra that installs each package."""


class MissingExtraError(ImportError):
    """A package that belongs to an extra is not installed."""


@contextmanager
def extra(requirement: str = "") -> Iterator[None]:
    """Raise MissingExtraError, which names the extra, if the block imports a package that is not installed.

    `requirement` is the distribution with its extra. If it is empty, EXTRAS determines the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        requirement = requirement or EXTRAS.get(package, "")
        if not package or package.startswith("outbox_") or not requirement:
            raise
        command = f"pip install '/path/to/{requirement}'"
        message = f"{package} is not installed: run `{command}` with the path of a checkout or of a release's wheel"
        raise MissingExtraError(message, name=package) from error
