"""What the commands of the jobs share: options, how errors are told, exit codes."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from outbox_spark.errors import MaterializeError

Tell = Callable[[str], None]


class Exit(IntEnum):
    """Exit codes, the same for all commands."""

    DONE = 0
    FAILED = 1
    """At least one table was not brought up to date; trying again later may help."""
    USAGE = 2
    """The command line is wrong. argparse's own."""
    FOUND = 3
    """`--dry-run`: there is something to read. outbox-reconcile: there are differences."""
    REFUSED = 4
    """At least one table needs a person: trying again gives the same answer."""
    INTERRUPTED = 130
    """Ctrl-C, as shells number it: 128 and SIGINT's own number."""


def tell(text: str) -> None:
    """Words for people: stderr."""
    print(text, file=sys.stderr, flush=True)


def explain(error: MaterializeError, tell: Tell, where: str = "") -> None:
    """Two lines at most: what, and the next step."""
    tell(f"error: {where}: {error.message}" if where else f"error: {error.message}")
    if error.hint:
        tell(f"hint: {error.hint}")


def exit_code(error: MaterializeError) -> Exit:
    """Whether trying again may help."""
    return Exit.FAILED if error.transient else Exit.REFUSED


def common_options(parser: argparse.ArgumentParser) -> None:
    """Which tables, of which files; form of the result."""
    # argparse, not typer: a cluster's driver may have only what the job itself needs.
    add = parser.add_argument
    add("-p", "--pipeline", type=Path, default=Path("connectors/library.yaml"), help="pipeline file")
    add("-e", "--environment", default="local", help="environment: connectors/environments/NAME.yaml")
    add("--aggregate", action="append", default=[], help="only this aggregate; can be given again")
    add("--target", action="append", default=[], help="only this target; can be given again")
    add("--output", choices=("table", "json"), default="table", help="form of the result on stdout")
    add("--debug", action="store_true", help="show tracebacks")


def guarded(body: Callable[[], int], *, debug: bool) -> int:
    """Run a command's body; an error that it expects is told in words, and so is Ctrl-C."""
    if not debug:
        logging.getLogger().addFilter(_is_no_interrupted_call)
    try:
        return body()
    except MaterializeError as error:
        if debug:
            traceback.print_exc()
        explain(error, tell)
        return exit_code(error)
    except KeyboardInterrupt:
        if debug:
            traceback.print_exc()
        tell("interrupted: every table is as its last committed batch left it; the next run goes on from there")
        return Exit.INTERRUPTED
    finally:
        logging.getLogger().removeFilter(_is_no_interrupted_call)


def plain_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, and do nothing else. For after Spark has started.

    Spark's own handler first asks Java to cancel all jobs, over the connection that is waiting for one: what is
    raised is then an error of that connection, which looks as if the table had failed, and the next one is begun.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_no_interrupted_call(record: logging.LogRecord) -> bool:
    """Py4J logs the traceback of each call that Ctrl-C interrupts, by the root logger."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending")
