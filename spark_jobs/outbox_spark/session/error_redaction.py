"""Messages for unexpected errors, without the record values that messages of Spark and PostgreSQL may contain."""

from __future__ import annotations

from contextlib import suppress

import psycopg
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from outbox_spark.errors import OutboxKitError

_MAX_LENGTH = 200
_LOST_CLASS = "PersistedRows$LostException"
_HINT = "run the command again; if the error persists, add --debug to print the traceback"
_RETRY_HINT = "run the command again: it reads the uncommitted records again"


def redacted(error: Exception) -> OutboxKitError:
    """Return an error that names the class of `error` and the part of its message that contains no values."""
    if isinstance(error, OutboxKitError):
        return error
    if _is_lost_rows(error):
        message = "persisted rows of a batch were lost (for example with an executor), and the topic may have changed"
        return OutboxKitError(message, _RETRY_HINT)
    detail = _detail(error)
    name = type(error).__name__
    if isinstance(error, psycopg.OperationalError):
        return OutboxKitError(f"PostgreSQL: {name}: {detail}", _RETRY_HINT)
    return OutboxKitError(f"{name}: {detail}" if detail else name, _HINT)


def _is_lost_rows(error: Exception) -> bool:
    with suppress(Exception):  # str() raises for some Spark errors
        return isinstance(error, (PySparkException, Py4JError)) and _LOST_CLASS in str(error)
    return False


def postgres_message(error: psycopg.Error) -> str:
    """Return the message of PostgreSQL without values."""
    state = error.sqlstate
    if state is None:  # not connected
        return _first_line(str(error))
    if state.startswith("22"):  # data exceptions: the message contains a value
        return f"a value was rejected, SQLSTATE {state}"
    # Detail and context contain rows; the primary message names tables, columns and constraints.
    return _first_line(error.diag.message_primary or f"SQLSTATE {state}")


def _detail(error: Exception) -> str:
    if isinstance(error, psycopg.Error):
        return postgres_message(error)
    if isinstance(error, KafkaException):
        reason = error.args[0] if error.args else ""
        return _first_line(reason.str() if hasattr(reason, "str") else str(reason))
    if isinstance(error, AnalysisException):  # names and types only: nothing has run yet
        with suppress(Exception):  # raises for Delta's errors: PySpark lacks their message templates
            return _first_line(str(error))
    if isinstance(error, (PySparkException, Py4JError)):
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        return ", ".join(filter(None, [condition, *_java_classes(error)]))
    # UnicodeError contains bytes. Other errors of Python contain schemas, responses and counts, but no records.
    return "" if isinstance(error, UnicodeError) else _first_line(str(error))


def _java_classes(error: Exception) -> list[str]:
    """Return the class names of the Java exception and its causes."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    names: list[str] = []
    try:
        while cause is not None:
            names.append(str(cause.getClass().getName()))
            cause = cause.getCause()
    except Exception:  # the JVM may have ended
        return names
    return names


def _first_line(text: str) -> str:
    line = text.strip().split("\n", maxsplit=1)[0]
    return line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]}..."
