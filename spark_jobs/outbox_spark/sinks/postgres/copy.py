"""Staging by COPY from the executors, with no Python there.

Spark makes the lines of COPY's text format; a class in our jar (spark_jobs/java, CopyRows) sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS, Column, Kind
from outbox_spark.errors import MaterializeError
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.session.expression_cache import reused
from outbox_spark.session.stage_metrics import OBSERVATION
from outbox_spark.sinks.postgres.session import jdbc_settings, jdbc_url

CLASS = "io.outboxkit.spark.CopyRows"
_REFUSED = "COPY was refused, SQLSTATE "
"""CopyRows.REFUSED."""
_STATE_LENGTH = 5
_NO_CONNECTION = "08"
# Kinds whose text can hold a character that COPY's text format escapes.
_ESCAPED = frozenset({Kind.TEXT, Kind.JSON})


def copy_rows(
    rows: DataFrame, columns: Sequence[Column], target: PostgresTarget, name: str
) -> tuple[dict[int, int], dict[str, Any]]:
    """Copy `rows` into the table `name`; returns how many rows each transaction copied, by its id, and what was
    observed of the rows under OBSERVATION, by name.

    `rows` has the staging table's columns in their order. Raises MaterializeError when the server refused them.
    """
    lines = rows.select(copy_line(tuple(columns)))
    jvm: Any = rows.sparkSession.sparkContext._jvm
    try:
        copied = jvm.io.outboxkit.spark.CopyRows.into(name, lines._jdf, jdbc_url(target), jdbc_settings(target))
        observed = copied.observed().get(OBSERVATION)
        sums = {} if observed is None else {each: observed.getAs(each) for each in observed.schema().fieldNames()}
        return {transaction: count for transaction, count in copied.tries()}, sums
    except (Py4JJavaError, PySparkException) as error:
        _, found, rest = str(error).partition(_REFUSED)
        if not found:
            raise
        state = rest[:_STATE_LENGTH]
        refused = f"COPY was refused, SQLSTATE {state}"
        said = "an executor has no connection to it" if state.startswith(_NO_CONNECTION) else refused
        message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {said}"
        raise MaterializeError(message, "nothing was changed; the server's log says more") from error


@reused
def copy_line(columns: tuple[Column, ...]) -> Expression:
    """A row of staging as one line of COPY's text format, in bytes."""
    text = [KEY_COLUMN, "_sequence", *(column.name for column in columns if column.kind in _ESCAPED)]
    binary = ["_key", "_value", *(column.name for column in columns if column.kind is Kind.BYTES)]
    names = [KEY_COLUMN, *(column.name for column in columns), *METADATA_COLUMNS, *OUTCOME_COLUMNS]
    fields = []
    for name in names:
        value = F.col(f"`{name}`")
        if name in binary:
            value = F.concat(F.lit("\\\\x"), F.hex(value))
        elif name == "_timestamp":
            value = F.concat(value.cast("string"), F.lit("+00"))
        elif name in text:
            value = _escaped(value)
        fields.append(F.coalesce(value.cast("string"), F.lit("\\N")))
    return F.concat(F.concat_ws("\t", *fields), F.lit("\n")).cast("binary")


def _escaped(value: Expression) -> Expression:
    # Most values have none of them, and to look for a character is far cheaper than to look for a text to replace.
    special = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
    escaped = value
    for raw, shown in special:
        escaped = F.replace(escaped, F.lit(raw), F.lit(shown))
    return F.when(reduce(or_, [F.contains(value, F.lit(raw)) for raw, _ in special]), escaped).otherwise(value)
