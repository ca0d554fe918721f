"""Staging by COPY from the executors, with no Python for a single row.

Spark makes the lines of COPY's text format, each with its line feed; an Arrow column of text keeps them one after
the other, so that its buffer is the very stream that COPY reads. What runs on executors is nested in functions:
it travels by value, and needs psycopg and pyarrow there but not this package.
"""
# No `from __future__ import annotations`: Spark reads the hints of the function that it sends to the executors.

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from outbox_spark.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS, Column, Kind
from outbox_spark.errors import MaterializeError
from outbox_spark.model import PostgresTarget
from outbox_spark.reused import reused
from outbox_spark.sinks.postgres_session import Parameters, connection_parameters

_REFUSED = "COPY was refused, SQLSTATE "
_NO_STATE = "-----"
# Kinds whose text can hold a character that COPY's text format escapes.
_ESCAPED = frozenset({Kind.TEXT, Kind.JSON})
_PROBED: dict[str, bool] = {}


def executors_can(spark: SparkSession) -> bool:
    """Whether psycopg and pyarrow can be imported where Spark's tasks run; asked once per application."""
    application = str(spark.sparkContext.applicationId)
    if application not in _PROBED:
        _PROBED[application] = _probe(spark)
    return _PROBED[application]


def _probe(spark: SparkSession) -> bool:
    def imports(_: int) -> bool:
        try:
            import psycopg  # noqa: F401, PLC0415 - on the executor
            import pyarrow  # noqa: F401, PLC0415
        except ImportError:
            return False
        return True

    try:
        context = spark.sparkContext
        tasks = context.defaultParallelism
        return all(context.parallelize(range(tasks), tasks).map(imports).collect())
    except Exception:  # no Python there, or another version of it: JDBC needs none
        return False


def copy_rows(rows: DataFrame, columns: Sequence[Column], target: PostgresTarget, name: str) -> dict[int, int]:
    """Copy `rows` into the table `name`; returns how many rows each transaction copied, by its id.

    `rows` has the staging table's columns in their order. Raises MaterializeError when the server refused them.
    """
    statement = f"copy {name} from stdin"
    make: Any = arrow_udf  # its stubs know no function whose hints tell what it is
    copy = make(_copier(connection_parameters(target), statement), "long").asNondeterministic()
    copied = rows.select(copy(copy_line(tuple(columns))).alias("transaction")).groupBy("transaction").count()
    try:
        return {row["transaction"]: row["count"] for row in copied.collect()}
    except PythonException as error:
        _, found, rest = str(error).partition(_REFUSED)
        if not found:
            raise
        state = rest[: len(_NO_STATE)]
        said = "an executor has no connection to it" if state == _NO_STATE else f"COPY was refused, SQLSTATE {state}"
        message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {said}"
        raise MaterializeError(message, "nothing was changed; the server's log says more") from error


@reused
def copy_line(columns: tuple[Column, ...]) -> Expression:
    """A row of staging as one line of COPY's text format."""
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
    return F.concat(F.concat_ws("\t", *fields), F.lit("\n"))


def _escaped(value: Expression) -> Expression:
    for raw, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        value = F.replace(value, F.lit(raw), F.lit(escaped))
    return value


def _copier(parameters: Parameters, statement: str) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """A function over the lines of one task; yields for each line the id of the transaction that copies it.

    Commits after the last line: a task that fails before leaves nothing, one that fails after leaves rows whose
    transaction nobody reports.
    """
    refused, no_state = _REFUSED, _NO_STATE

    def copy(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        import struct  # noqa: PLC0415 - on the executor

        def stream(lines: pa.Array) -> memoryview:
            _, offsets, text = lines.buffers()
            form = "<q" if pa.types.is_large_string(lines.type) else "<i"
            size = struct.calcsize(form)
            first, last = (
                struct.unpack_from(form, offsets, (lines.offset + number) * size)[0] for number in (0, len(lines))
            )
            return memoryview(text)[first:last] if text is not None else memoryview(b"")

        try:
            with psycopg.connect(**parameters) as connection, connection.cursor() as cursor:
                # Staging is not logged: there is nothing to wait for.
                cursor.execute("set synchronous_commit = off")
                cursor.execute("select pg_current_xact_id()::xid::text::bigint")
                (transaction,) = cursor.fetchone() or (0,)
                with cursor.copy(statement.encode()) as stdin:
                    for lines in batches:
                        stdin.write(stream(lines))
                        yield pa.repeat(pa.scalar(transaction, pa.int64()), len(lines))
        except psycopg.Error as error:
            # Not the message: its context quotes the row.
            raise RuntimeError(f"{refused}{error.sqlstate or no_state}") from None

    return copy
