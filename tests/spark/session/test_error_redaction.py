"""Messages of unexpected errors: useful, but without record values."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.errors import RefusedError
from outbox_spark.session.error_redaction import redacted

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
        ("select * from nowhere", 'UndefinedTable: relation "nowhere" does not exist'),
    ],
)
def test_redacts_errors_of_postgres(postgres: psycopg.conninfo.ConninfoDict, statement: str, message: str) -> None:
    arguments: dict[str, Any] = dict(postgres)
    with psycopg.connect(**arguments) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert message_of(caught.value) == message


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
