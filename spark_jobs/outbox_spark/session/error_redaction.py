"""Create messages for unexpected errors, and omit record values, which errors of Spark and PostgreSQL may quote."""

from __future__ import annotations

import re
from contextlib import suppress

import psycopg
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from outbox_common.error_text import first_line, postgres_message, traceback_text
from outbox_events.errors import OutboxError

_JAVA_FRAME = re.compile(r"\s+at [\w.$/<>]+\(|\s+\.\.\. \d+ more$")
_LOST_ROWS_EXCEPTION = "PersistedRows$LostException"
_DEBUG_HINT = "run the command again; if the error persists, add --debug to print the traceback"
_LOST_ROWS_HINT = "run the command again"
_POSTGRES_HINT = "check the PostgreSQL server and its log, then run the command again"


def redacted(error: Exception) -> OutboxError:
    """Return an OutboxError whose message contains no values of records. Return an OutboxError unchanged."""
    if isinstance(error, OutboxError):
        return error
    if _is_lost_rows_error(error):
        message = "persisted rows of a batch were lost, perhaps because an executor failed; the topic may have changed"
        return OutboxError(message, _LOST_ROWS_HINT)
    name, detail = type(error).__name__, _detail(error)
    if isinstance(error, psycopg.OperationalError):
        return OutboxError(f"PostgreSQL: {name}: {detail}", _POSTGRES_HINT)
    return OutboxError(f"{name}: {detail}" if detail else name, _DEBUG_HINT)


def debug_traceback(error: BaseException) -> str:
    """Return the traceback of an error and its causes, with Java's stack frames but without values of records."""
    return traceback_text(error, _debug_message)


def _debug_message(error: BaseException) -> str:
    if not isinstance(error, (PySparkException, Py4JError, psycopg.Error, UnicodeError)):
        return str(error)
    frames = [line for line in str(error).splitlines() if _JAVA_FRAME.match(line)]
    return "\n".join([redacted(error).message, *frames])


def _is_lost_rows_error(error: Exception) -> bool:
    with suppress(Exception):  # str() can raise, see _detail
        return isinstance(error, (PySparkException, Py4JError)) and _LOST_ROWS_EXCEPTION in str(error)
    return False


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
    """Return the class names of the Java exception of `error` and of its causes; empty if it has no Java exception."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    names: list[str] = []
    with suppress(Exception):  # the JVM may have ended; return the names that were read
        while cause is not None:
            names.append(str(cause.getClass().getName()))
            cause = cause.getCause()
    return names
