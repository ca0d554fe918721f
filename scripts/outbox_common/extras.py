"""Errors for imports that need a package of an extra of outbox-kit (`pip install '/path/to/outbox-kit[EXTRA]'`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

OWN_PACKAGES = {"outbox_common", "outbox_kit", "outbox_spark"}


class MissingExtraError(ImportError):
    """A package is not installed that an extra of outbox-kit contains."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Raise MissingExtraError, which names the extra, if an import in the block does not find a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OWN_PACKAGES:
            raise
        command = f"pip install '/path/to/outbox-kit[{name}]'"
        message = f"{package} is not installed: `{command}` (a checkout, or the wheel of a release) installs it"
        raise MissingExtraError(message, name=package) from error
