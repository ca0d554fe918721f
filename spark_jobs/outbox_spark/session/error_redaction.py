"""Errors that nobody foresaw, in words that cannot carry a record: messages of Spark and PostgreSQL quote values."""

from __future__ import annotations

from contextlib import suppress

import psycopg
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from outbox_spark.errors import MaterializeError

_LONGEST = 200
_LOST = "KeptRows$LostException"
_HINT = "run again; where it stays, once with --debug for the traceback"
_READ_AGAIN = "what was not committed is read again by the next run: run again"


def explained(error: Exception) -> MaterializeError:
    """An error that ends one table's run, with the class of what was raised and what is safe to say of it."""
    if isinstance(error, MaterializeError):
        return error
    if _says_lost(error):
        message = "rows that a batch kept were lost, as with an executor, and the topic may have changed since"
        return MaterializeError(message, _READ_AGAIN)
    detail = _detail(error)
    name = type(error).__name__
    if isinstance(error, psycopg.OperationalError):
        return MaterializeError(f"PostgreSQL: {name}: {detail}", _READ_AGAIN)
    return MaterializeError(f"{name}: {detail}" if detail else name, _HINT)


def _says_lost(error: Exception) -> bool:
    with suppress(Exception):  # not every error of Spark's can say what it is
        return isinstance(error, (PySparkException, Py4JError)) and _LOST in str(error)
    return False


def postgres_words(error: psycopg.Error) -> str:
    """What PostgreSQL said, without the values it said it of."""
    state = error.sqlstate
    if state is None:  # no connection, or none any more
        return _first_line(str(error))
    if state.startswith("22"):  # data exceptions: the message is about a value, and quotes it
        return f"a value was refused, SQLSTATE {state}"
    # Detail and context quote rows; the primary message names tables, columns and constraints.
    return _first_line(error.diag.message_primary or f"SQLSTATE {state}")


def _detail(error: Exception) -> str:
    if isinstance(error, psycopg.Error):
        return postgres_words(error)
    if isinstance(error, KafkaException):
        reason = error.args[0] if error.args else ""
        return _first_line(reason.str() if hasattr(reason, "str") else str(reason))
    if isinstance(error, AnalysisException):  # about names and types: nothing has run yet
        with suppress(Exception):  # Spark does not find the words of Delta's own errors, and raises over that
            return _first_line(str(error))
    if isinstance(error, (PySparkException, Py4JError)):
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        return ", ".join(filter(None, [condition, *_java_classes(error)]))
    # Bytes are quoted in it; and Python sees no record, only schemas, answers and counts.
    return "" if isinstance(error, UnicodeError) else _first_line(str(error))


def _java_classes(error: Exception) -> list[str]:
    """What was raised in Java, and what it came from, as class names."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    names: list[str] = []
    try:
        while cause is not None:
            names.append(str(cause.getClass().getName()))
            cause = cause.getCause()
    except Exception:  # Java may be what died
        return names
    return names


def _first_line(text: str) -> str:
    line = text.strip().split("\n", maxsplit=1)[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
