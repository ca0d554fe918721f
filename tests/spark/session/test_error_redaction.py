"""Messages of unexpected errors are useful, but do not contain values of records."""

from __future__ import annotations

import errno
from typing import Any

import psycopg
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.errors import RefusedError
from outbox_spark.session.error_redaction import debug_traceback, redacted

SECRET = "p4yload"


def message_of(error: Exception) -> str:
    return redacted(error).message


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"select '{SECRET}'::int", "InvalidTextRepresentation: a value was rejected, SQLSTATE 22P02"),
        (
            f"create temp table t (x text primary key); insert into t values ('{SECRET}'), ('{SECRET}')",
            'UniqueViolation: duplicate key value violates unique constraint "t_pkey"',
        ),
        (
            f"create temp table c (x text check (x <> '{SECRET}')); insert into c values ('{SECRET}')",
            'CheckViolation: new row for relation "c" violates check constraint "c_x_check"',
        ),
        ("select * from nowhere", 'UndefinedTable: relation "nowhere" does not exist'),
    ],
)
def test_redacts_errors_of_postgres(postgres: psycopg.conninfo.ConninfoDict, statement: str, message: str) -> None:
    arguments: dict[str, Any] = dict(postgres)
    with psycopg.connect(**arguments) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert message_of(caught.value) == f"PostgreSQL: {message}"
    assert SECRET not in debug_traceback(caught.value)


def test_redacts_errors_of_spark(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=SECRET) as caught:
        spark.range(1).select(F.lit(SECRET).cast("int")).collect()
    assert "CAST_INVALID_INPUT" in message_of(caught.value)
    assert SECRET not in message_of(caught.value)
    with pytest.raises(Exception, match=SECRET) as caught:
        spark.range(1).select(F.raise_error(F.concat(F.lit(SECRET), F.col("id").cast("string")))).collect()
    assert SECRET not in message_of(caught.value)
    with pytest.raises(AnalysisException) as analysis:
        spark.table("nowhere")
    assert message_of(analysis.value).startswith("AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]")
    assert not redacted(analysis.value).transient


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_traceback_has_no_record_values(spark: SparkSession, wrapped: bool) -> None:
    jvm: Any = spark._jvm

    def fail() -> None:
        try:
            jvm.java.lang.Class.forName(SECRET)
        except Py4JError as error:
            if wrapped:
                raise RefusedError("message") from error
            raise

    with pytest.raises(Exception, match="message" if wrapped else SECRET) as caught:
        fail()
    actual = debug_traceback(caught.value)
    assert SECRET not in actual
    assert 'test_error_redaction.py", line' in actual
    assert "java.lang.ClassNotFoundException\n\tat java.base/" in actual


def test_redacts_an_error_whose_text_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: AnalysisException) -> str:
        raise RuntimeError

    monkeypatch.setattr(AnalysisException, "__str__", broken)
    assert message_of(AnalysisException("x")) == "AnalysisException"


def test_redacts_errors_of_python() -> None:
    expected = RefusedError("message", "hint")
    assert redacted(expected) is expected
    assert message_of(ValueError("short\nsecond line")) == "ValueError: short"
    assert message_of(KeyError()) == "KeyError"
    assert len(message_of(ValueError("x" * 1000))) < 250
    with pytest.raises(UnicodeDecodeError) as caught:
        b"\xff".decode()
    assert message_of(caught.value) == "UnicodeDecodeError"


def test_reports_a_lost_connection_only() -> None:
    actual = redacted(psycopg.errors.AdminShutdown("terminating connection due to administrator command"))
    assert actual.message.startswith("PostgreSQL: AdminShutdown")
    assert "run the command again" in actual.hint
    assert actual.transient


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        psycopg.errors.DiskFull("could not extend file"),
        psycopg.errors.InsufficientPrivilege("permission denied for table t"),
        psycopg.errors.UndefinedColumn("column does not exist"),
    ],
)
def test_errors_that_a_retry_cannot_correct_are_not_retryable(error: Exception) -> None:
    assert not redacted(error).transient
    assert "--debug" not in redacted(error).hint
