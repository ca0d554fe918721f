"""Entry points of the Spark commands. Ctrl-C ends the process even while a command is still being imported."""

from __future__ import annotations

import sys
from importlib import import_module

from outbox_common.interrupts import ended_by_signals
from outbox_events.extras import MissingExtraError, extra

REFUSED = 4
"""The value of Exit.REFUSED, which cannot be imported because its module needs packages that may be missing."""


def materialize() -> int:
    """Run `outbox-materialize`."""
    return _run("materialize")


def maintain() -> int:
    """Run `outbox-maintain`."""
    return _run("maintain")


def reconcile() -> int:
    """Run `outbox-reconcile`."""
    return _run("reconcile")


def rebuild() -> int:
    """Run `outbox-rebuild`."""
    return _run("rebuild")


def _run(command: str) -> int:
    try:
        with ended_by_signals(), extra("outbox-kit[spark]"):
            module = import_module(f"outbox_spark.commands.{command}")
    except MissingExtraError as error:
        sys.stderr.write(f"error: {error}\n")
        return REFUSED
    code: int = module.main()
    return code
