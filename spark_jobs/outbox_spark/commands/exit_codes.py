"""Define the exit codes of the Spark commands, and convert errors to messages and exit codes."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from enum import IntEnum
from functools import partial
from typing import Any

from outbox_common.error_text import printable
from outbox_common.interrupts import was_interrupted
from outbox_common.pipeline_files import UsageError
from outbox_common.waiting_line import WaitingLine
from outbox_events.errors import OutboxError
from outbox_spark.jobs.model import Reporter
from outbox_spark.session.error_redaction import JVM_ENDED, debug_traceback

_PY4J_LOGGERS = ("", "py4j.clientserver")
"""Names of the loggers to which Py4J reports an interrupted call; the first is the root logger."""

_COMMAND = re.compile(r"`((outbox[ -])[^`]+)`")
_selection: dict[str, str] = {}

waiting = WaitingLine()


class Exit(IntEnum):
    """Exit codes, which are the same for all commands, and their descriptions for `--help`."""

    description: str

    def __new__(cls, code: int, description: str) -> Exit:
        member = int.__new__(cls, code)
        member._value_ = code
        member.description = description
        return member

    DONE = 0, "success: outbox-materialize has read every selected topic to its end"
    FAILED = 1, "there were failures, but all of them are retryable; have the scheduler retry"
    USAGE = 2, "the command line is invalid"
    FINDINGS = 3, "--dry-run: a run has work to do; outbox-reconcile: there are differences"
    REFUSED = 4, "at least one failure is not retryable; send an alert instead of retrying"
    INTERRUPTED = 130, "interrupted: every table is at its last committed batch"


EXIT_CODES = "exit codes:\n" + "".join(f"  {code:<3d}  {code.description}\n" for code in Exit)


def exit_code(retryable: Iterable[bool | None], *, has_findings: bool = False) -> Exit:
    """Return the exit code of a command.

    `retryable` states whether each failure is retryable. Set `has_findings` if there is pending work or a difference.
    """
    values = list(retryable)
    if values:
        return Exit.FAILED if all(values) else Exit.REFUSED
    return Exit.FINDINGS if has_findings else Exit.DONE


def failure_fields(error: OutboxError | None) -> dict[str, Any]:
    """Return the error fields of a JSON report; they are null if `error` is None."""
    if error is None:
        return {"error": None, "hint": None, "transient": None}
    return {"error": error.message, "hint": error.hint, "transient": error.transient}


def print_message(text: str) -> None:
    """Print a message to stderr, because stdout is reserved for results."""
    with waiting.erased():
        print(printable(text), file=sys.stderr, flush=True)


def print_result(text: str) -> None:
    """Print the result of a command to stdout."""
    with waiting.erased():
        print(text, flush=True)


def report_error(error: OutboxError, report: Reporter, subject: str = "", table_options: str = "") -> None:
    """Report an error's message, with `subject` as a prefix, and then the error's hint.

    `table_options` select the table that failed. They are added to the commands of the Spark jobs in the hint, because
    these commands would otherwise change every table, and a rebuild removes the older versions of a history table.
    """
    message = error.message.removeprefix(f"{subject}: ")
    report(f"error: {subject}: {message}" if subject else f"error: {message}")
    if error.hint:
        report(f"hint: {_COMMAND.sub(partial(_add_selection, table_options), error.hint)}")


def select_files(*, pipeline: str = "", job: str = "") -> None:
    """Set the options that are added to the commands in hints, so that a command can be pasted into a shell.

    Only the commands of the Spark jobs can read a job file.
    """
    _selection.update({"outbox ": pipeline, "outbox-": pipeline or job})


def _add_selection(table_options: str, command: re.Match[str]) -> str:
    options = [_selection.get(command[2], ""), table_options if command[2] == "outbox-" else ""]
    return f"`{' '.join([command[1], *filter(None, options)])}`"


def run_command(body: Callable[[], int], *, debug: bool) -> int:
    """Run the body of a command and return its exit code. Print a message for an OutboxError and for Ctrl-C."""
    try:
        with waiting.running(""), nullcontext() if debug else filtered_py4j_logs(_is_not_reported):
            return body()
    except OutboxError as error:
        if debug:
            print_message(debug_traceback(error))
        report_error(error, print_message)
        return Exit.USAGE if isinstance(error, UsageError) else exit_code([error.transient])
    except (Exception, KeyboardInterrupt) as error:
        if not was_interrupted(error):
            raise
        if debug:
            print_message(debug_traceback(error))
        print_message("interrupted: every table is at its last committed batch; the next run continues from there")
        return Exit.INTERRUPTED


@contextmanager
def filtered_py4j_logs(is_logged: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Inside `with`, restrict Py4J's log output to the records for which `is_logged` returns True."""
    loggers = [logging.getLogger(name) for name in _PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_logged)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_logged)


def restore_interrupt_handler() -> None:
    """Replace Spark's SIGINT handler with Python's, which raises KeyboardInterrupt.

    Spark's handler cancels all jobs over a Py4J connection that is in use. The command would report the resulting
    connection error as a failure of the table, and continue with the next table.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_not_reported(record: logging.LogRecord) -> bool:
    """Return False for a Py4J call that Ctrl-C or the end of the JVM interrupted, which the command itself reports."""
    error = record.exc_info[1] if record.exc_info else None
    return not (was_interrupted(error) or isinstance(error, JVM_ENDED))
