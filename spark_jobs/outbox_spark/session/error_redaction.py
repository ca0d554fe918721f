"""Create messages for unexpected errors, and omit record values, which errors of Spark and PostgreSQL may quote."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from contextlib import suppress

import psycopg
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from outbox_common.error_text import first_line, postgres_message, traceback_text
from outbox_events.errors import OutboxError, RefusedError
from outbox_spark.errors import REBUILD_HINT

JVM_ENDED = (Py4JError, ConnectionError)
"""Errors of calls after the JVM of Spark's driver has ended. Py4J raises those of its sockets unchanged."""
_JAVA_FRAME = re.compile(r"\s+at [\w.$/<>]+\(|\s+\.\.\. \d+ more$")
_READER_PACKAGE = "io.outboxkit.spark."
_DEBUG_HINT = "run the command again; if the error persists, add --debug to print the traceback"
_READER_ERRORS: Mapping[str, tuple[type[OutboxError], str]] = {
    "LostException": (OutboxError, "run the command again"),
    "MissingRecordsException": (OutboxError, "check the brokers, then run the command again"),
    "TopicDeletedException": (RefusedError, "run `outbox apply`, then see docs/materialization-errors.md"),
}
"""Exceptions of outbox-spark.jar, whose messages contain no values, with the kind of error and its hint."""
_POSTGRES_HINT = "check the PostgreSQL server and its log, then run the command again"
_POSTGRES_HINTS: Mapping[tuple[type[psycopg.Error], ...], str] = {
    (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn): f"restore the table, or {REBUILD_HINT}",
    (psycopg.errors.InvalidColumnReference,): "restore the primary key, or drop the table and run `outbox-materialize`",
    (psycopg.errors.InsufficientPrivilege,): "grant the missing privilege to the user of the target",
    (psycopg.errors.DiskFull,): "free space on the PostgreSQL server, then run the command again",
}
"""Hints for errors that a retry cannot correct."""
_NO_SPACE = "No space left on device"
_NOT_FOUND = re.compile(r"No such file|does not exist|not found", re.IGNORECASE)
_TABLE_FILE = re.compile(r"[^\s'\"]+\.(parquet|avro|bin|metadata\.json)\b")


def redacted(error: Exception) -> OutboxError:
    """Return an OutboxError whose message contains no values of records. Return an OutboxError unchanged."""
    if isinstance(error, OutboxError):
        return error
    for name, message in _java_causes(error):
        if name.startswith(_READER_PACKAGE) and name.rpartition("$")[2] in _READER_ERRORS:
            kind, hint = _READER_ERRORS[name.rpartition("$")[2]]
            return kind(message, hint)
    if _shows_that_jvm_ended(error):
        hint = "run the command again; if it persists, check the memory of the machine, which limits Spark's JVM"
        return OutboxError("the JVM of Spark's driver has ended", hint)
    name, detail = type(error).__name__, _detail(error)
    if isinstance(error, psycopg.Error):
        return postgres_error(error, f"PostgreSQL: {name}")
    message = f"{name}: {detail}" if detail else name
    # Delta raises an AnalysisException if another job changes the schema of a table while it is read.
    if isinstance(error, AnalysisException) and "SCHEMA_CHANGE" not in message:
        return RefusedError(message, "add --debug to print the traceback")
    return storage_error(error) or OutboxError(message, _DEBUG_HINT)


def _shows_that_jvm_ended(error: Exception) -> bool:
    # If a call is interrupted by the end of the JVM, Py4J's error has no cause and no stack trace of Java.
    is_interrupted_call = type(error) is Py4JError and "Trace:" not in str(error)
    return isinstance(error, (ConnectionError, Py4JNetworkError)) or is_interrupted_call


def postgres_error(error: psycopg.Error, subject: str) -> OutboxError:
    """Return the error with `subject` as prefix. It is not retryable if somebody must first correct the server."""
    message = f"{subject}: {postgres_message(error)}"
    hint = next((hint for classes, hint in _POSTGRES_HINTS.items() if isinstance(error, classes)), None)
    return OutboxError(message, _POSTGRES_HINT) if hint is None else RefusedError(message, hint)


def storage_error(error: Exception) -> OutboxError | None:
    """Return the error for a full disk or a missing file of a table; None for any other error."""
    messages = [message for _, message in _java_causes(error)]
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if is_full or any(_NO_SPACE in message for message in messages):
        return RefusedError("a disk is full", "free space in the target and in spark.local.dir, then run again")
    for message in messages:
        if _NOT_FOUND.search(message) and (found := _TABLE_FILE.search(message)):
            return RefusedError(f"file {found[0]} of the table is missing", f"restore the file, or {REBUILD_HINT}")
    return None


def debug_traceback(error: BaseException) -> str:
    """Return the traceback of an error and its causes, with Java's stack frames but without values of records."""
    return traceback_text(error, _debug_message)


def _debug_message(error: BaseException) -> str:
    if not isinstance(error, (PySparkException, Py4JError, psycopg.Error, UnicodeError)):
        return str(error)
    frames = [line for line in str(error).splitlines() if _JAVA_FRAME.match(line)]
    return "\n".join([redacted(error).message, *frames])


def _detail(error: Exception) -> str:
    if isinstance(error, psycopg.Error):
        return postgres_message(error)
    if isinstance(error, KafkaException):
        reason = error.args[0] if error.args else ""
        return first_line(reason.str() if hasattr(reason, "str") else str(reason))
    if isinstance(error, AnalysisException):  # raised before execution, so it contains no values
        with suppress(Exception):  # str() raises for Delta's errors, for which PySpark has no message template
            return first_line(str(error))
    if isinstance(error, (PySparkException, Py4JError)):
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        return ", ".join(filter(None, [condition, *_java_classes(error)]))
    # A UnicodeError's message contains bytes. Messages of other Python errors contain no records.
    return "" if isinstance(error, UnicodeError) else first_line(str(error))


def _java_classes(error: Exception) -> list[str]:
    return [name for name, _ in _java_causes(error)]


def _java_causes(error: Exception) -> list[tuple[str, str]]:
    """Return class name and message of the Java exception of `error` and of its causes; empty if there is none.

    The messages can contain values of records.
    """
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    causes: list[tuple[str, str]] = []
    with suppress(Exception):  # the JVM may have ended; return the causes that were read
        while cause is not None:
            causes.append((str(cause.getClass().getName()), str(cause.getMessage())))
            cause = cause.getCause()
    return causes
