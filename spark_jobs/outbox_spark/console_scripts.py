"""Entry points of the Spark commands. Ctrl-C ends the process even while a command is still being imported."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module

from outbox_common.interrupts import ended_by_signals
from outbox_events.extras import MissingExtraError, extra

REFUSED = 4
"""The value of Exit.REFUSED, which cannot be imported because its module needs packages that may be missing."""


def _run(command: str) -> int:
    try:
        with ended_by_signals(), extra("outbox-kit[spark]"):
            module = import_module(f"outbox_spark.commands.{command}")
    except MissingExtraError as error:
        sys.stderr.write(f"error: {error}\n")
        return REFUSED
    code: int = module.main()
    return code


materialize = partial(_run, "materialize")
maintain = partial(_run, "maintain")
reconcile = partial(_run, "reconcile")
rebuild = partial(_run, "rebuild")
