"""Run jobs in one Spark application. A failure of one job does not affect the other jobs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_common.interrupts import was_interrupted
from outbox_events.errors import OutboxError
from outbox_spark.commands.exit_codes import (
    filtered_py4j_logs,
    print_message,
    report_error,
    restore_interrupt_handler,
    waiting,
)
from outbox_spark.commands.interval import Attempts, Stopped, attempt_of
from outbox_spark.commands.options import options_of
from outbox_spark.commands.workers import Workers
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import MaterializeJob, Outcome, Reporter
from outbox_spark.session.error_redaction import JVM_ENDED, debug_traceback, redacted
from outbox_spark.session.spark_session import start_session

APPLICATION_NAME = "outbox-materialize"
WAIT_SECONDS = 60.0
"""Maximum time for which the command waits for other runs after it has tried every table once."""
POLL_SECONDS = 2.0

R = TypeVar("R")


def start_spark(
    name: str = APPLICATION_NAME, *, few_records: bool = False, fair_scheduling: bool = False
) -> SparkSession:
    """Start Spark for a command (see start_session). Once Spark has started, Ctrl-C raises KeyboardInterrupt.

    The first Ctrl-C during the start raises KeyboardInterrupt only after the start, because PySpark leaves a JVM
    running if its start is interrupted.
    """
    if not _ctrl_c_raises():
        return _start(name, few_records, fair_scheduling)
    with _recorded_signals() as was_received:
        signal.signal(signal.SIGINT, _defer_first_interrupt)
        try:
            with filtered_py4j_logs(lambda record: not (record.exc_info and was_received(signal.SIGINT))):
                spark = _start(name, few_records, fair_scheduling)
        except Exception as error:
            # Spark's handler calls Java even if another call is in progress. That call can then fail with any error.
            if was_received(signal.SIGINT):
                raise KeyboardInterrupt from error
            raise
        if was_received(signal.SIGINT):
            spark.stop()
            raise KeyboardInterrupt
    return spark


def _start(name: str, few_records: bool, fair_scheduling: bool) -> SparkSession:
    print_message("starting Spark")
    waiting.start("starting Spark")
    try:
        return start_session(name, few_records=few_records, fair_scheduling=fair_scheduling)
    finally:
        waiting.start("")
        restore_interrupt_handler()  # start_session() installed Spark's handler


@contextmanager
def _recorded_signals() -> Iterator[Callable[[int], bool]]:
    """Yield a function that returns whether a signal arrived, even if handlers were replaced. Use the main thread."""
    descriptors = os.pipe()
    for descriptor in descriptors:
        os.set_blocking(descriptor, False)
    with os.fdopen(descriptors[0], "rb", 0) as reader, os.fdopen(descriptors[1], "wb", 0) as writer:
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        numbers = bytearray()

        def was_received(signum: int) -> bool:
            numbers.extend(reader.read() or b"")
            return signum in numbers

        try:
            yield was_received
        finally:
            signal.set_wakeup_fd(previous)


def _ctrl_c_raises() -> bool:
    is_main_thread = threading.current_thread() is threading.main_thread()
    return is_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _defer_first_interrupt(signum: int, _frame: FrameType | None) -> None:
    signal.signal(signum, signal.default_int_handler)
    print_message("interrupted: waiting until Spark has started; interrupt again to exit immediately")


def attempt(
    job: MaterializeJob,
    report: Reporter,
    work: Callable[[], R],
    on_error: Callable[[OutboxError], R],
    *,
    debug: bool,
    raised: tuple[type[Exception], ...] = (Stopped,),
    subject: str = "",
) -> R:
    """Return the result of `work`, or report its error and return `on_error(error)`. Propagate `raised` and Ctrl-C.

    `subject` is the prefix of the error's message, by default the job.
    """
    subject = subject or str(job)
    waiting.start(subject)
    try:
        return work()
    except raised:
        raise
    except Exception as error:  # of any type, because the other jobs must still run
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if debug:
            report(debug_traceback(error))
        failure = redacted(error)
        report_error(failure, report, subject, options_of(job))
        return on_error(failure)
    finally:
        waiting.start("")


def run_jobs(
    jobs: Sequence[MaterializeJob],
    report: Reporter,
    work: Callable[[SparkSession, MaterializeJob], R],
    on_error: Callable[[MaterializeJob, OutboxError], R],
    *,
    debug: bool,
    name: str = APPLICATION_NAME,
) -> list[R]:
    """Return the result of `work` for each job, or the result of `on_error` if `work` raises an error."""
    spark = start_spark(name)
    try:
        return [attempt(job, report, partial(work, spark, job), partial(on_error, job), debug=debug) for job in jobs]
    finally:
        stop_spark(spark)


def stop_spark(spark: SparkSession) -> None:
    """Stop Spark, unless its JVM has already ended."""
    with suppress(*JVM_ENDED):
        spark.stop()


def run_all(jobs: Sequence[MaterializeJob], workers: Workers[Attempts], report: Reporter) -> list[Outcome]:
    """Return the outcome of each job, in order.

    If two drivers start with the same tables, each driver can find a table that the other driver has locked. This
    function tries a locked table again until the other run ends or WAIT_SECONDS have passed.
    """
    outcomes: dict[int, Outcome] = {}
    locked = list(range(len(jobs)))
    deadline: float | None = None
    while locked:
        is_last_attempt = deadline is not None and time.monotonic() >= deadline
        raised = () if is_last_attempt else (OverlapError,)
        tried, locked = locked, []
        for index, result in workers.call({index: attempt_of(jobs[index], *raised) for index in tried}):
            try:
                outcomes[index] = result()
            except OverlapError as error:
                if deadline is None:
                    report(f"{jobs[index]}: {error.message}; retrying after the other tables")
                locked.append(index)
        if deadline is None and locked:
            deadline = time.monotonic() + WAIT_SECONDS
            names = ", ".join(str(jobs[index]) for index in locked)
            report(f"waiting at most {WAIT_SECONDS:g} s for other runs of: {names}")
        elif locked:
            time.sleep(POLL_SECONDS)
    return [outcomes[index] for index in range(len(jobs))]
