"""What the commands of the jobs share: options, how errors are told, exit codes."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path

from outbox_spark.errors import ConfigurationError, MaterializeError
from outbox_spark.jobs import job_file
from outbox_spark.jobs.model import MaterializeJob, Progress

DEFAULT_ENVIRONMENT = "local"


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


EXIT_CODES = """exit codes:
  0  done: outbox-materialize has brought every selected table to the end of its topic
  1  at least one table is not; trying again later may help: let the scheduler retry
  2  the command line is wrong
  3  something was found: --dry-run has something to read, outbox-reconcile has differences
  4  at least one table needs a person: trying again gives the same answer; alert, do not retry
  130  interrupted: every table is as its last committed batch left it
"""


def tell(text: str) -> None:
    """Words for people: stderr."""
    print(text, file=sys.stderr, flush=True)


def explain(error: MaterializeError, tell: Progress, where: str = "") -> None:
    """Two lines at most: what, and the next step."""
    tell(f"error: {where}: {error.message}" if where else f"error: {error.message}")
    if error.hint:
        tell(f"hint: {error.hint}")


def exit_code(failures: Iterable[bool | None]) -> Exit:
    """Of several tables: by each failure, whether trying again may help. One that needs a person goes first."""
    transient = list(failures)
    if not transient:
        return Exit.DONE
    return Exit.FAILED if all(transient) else Exit.REFUSED


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that all commands have, and their exit codes in the help."""
    # argparse, not typer: a cluster's driver may have only what the job itself needs.
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common_options(parser)
    return parser


def common_options(parser: argparse.ArgumentParser) -> None:
    """Which tables, of which files; form of the result."""
    source = parser.add_mutually_exclusive_group()
    pipeline = Path("connectors/library.yaml")
    source.add_argument("-p", "--pipeline", type=Path, default=pipeline, help=f"pipeline file; default {pipeline}")
    source.add_argument("--job", type=Path, metavar="FILE", help="job file, instead of pipeline and environment")
    add = parser.add_argument
    environment = "environment: connectors/environments/NAME.yaml; default %(default)s"
    add("-e", "--environment", default=DEFAULT_ENVIRONMENT, metavar="NAME", help=environment)
    add("--aggregate", action="append", default=[], help="only this aggregate; can be given again")
    add("--target", action="append", default=[], help="only this target; can be given again")
    add("--output", choices=("table", "json"), default="table", help="form of the result on stdout")
    add("--debug", action="store_true", help="show tracebacks")


def jobs_of(options: argparse.Namespace) -> list[MaterializeJob]:
    """The jobs that the options select, of the job file or of the pipeline file. Raises ConfigurationError."""
    selected = {"aggregates": options.aggregate, "targets": options.target}
    if options.job is not None:
        if options.environment != DEFAULT_ENVIRONMENT:
            message = f"--job {options.job} and --environment {options.environment}: a job file is of one environment"
            raise ConfigurationError(message, "give one of the two")
        return job_file.read_jobs(options.job, **selected)
    try:
        # Here, because with a job file the driver need not have the deploy tool and its packages.
        from outbox_spark.jobs.from_pipeline import load_jobs  # noqa: PLC0415
    except ImportError as error:
        message = f"to read the pipeline file, Python needs the package {error.name}"
        raise ConfigurationError(message, "install outbox-kit here, or give a job file with --job") from error
    return load_jobs(options.pipeline, options.environment, **selected)


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
        return exit_code([error.transient])
    except (Exception, KeyboardInterrupt) as error:
        if not was_interrupted(error):
            raise
        if debug:
            traceback.print_exc()
        tell("interrupted: every table is as its last committed batch left it; the next run goes on from there")
        return Exit.INTERRUPTED
    finally:
        logging.getLogger().removeFilter(_is_no_interrupted_call)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, or was raised on the way out of it: Py4J asks Java for more, and may get no answer."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


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
