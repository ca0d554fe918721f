"""Staged rows of a table without payload columns."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS

STAGED = [KEY_COLUMN, *METADATA_COLUMNS, *OUTCOME_COLUMNS]
TEXT = ["_sequence", "_timestamp", "__outbox_reason", "__outbox_key", "__outbox_value"]


def staged_row(key: Column) -> list[Column]:
    """Return the columns of a staged row. Only the key differs between rows."""
    return [key.alias(KEY_COLUMN), *[F.lit("x" if name in TEXT else 1).alias(name) for name in STAGED[1:]]]


def create_table(connection: psycopg.Connection[TupleRow], schema: str, kind: str = "text") -> None:
    """Create the table `t`, with columns of type `kind`."""
    fields = SQL(", ").join(SQL("{} {}").format(Identifier(name), Identifier(kind)) for name in STAGED)
    connection.execute(SQL("create table {} ({})").format(Identifier(schema, "t"), fields))
