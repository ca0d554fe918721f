"""Divide outbox rows into buckets. Relay processes lease buckets, and one producer sends a bucket's rows in order."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.pipeline import Pipeline

BUCKETS = 16
"""Number of buckets, and thus the maximum number of sending processes. A change moves aggregates to other buckets."""


def bucket_of_row(pipeline: Pipeline) -> sql.Composed:
    """Return an expression for a row's bucket, a hash of aggregate type and id. Nulls are hashed as empty strings.

    For aggregate types with a `partition_field`, the hash of this column replaces the hash of the id, so that the rows
    of a partition keep their order.
    """
    text = sql.SQL("coalesce({}::text, '')")
    aggregate_type = text.format(sql.Identifier(pipeline.source.columns.aggregate_type))
    names = {"id": text.format(sql.Identifier(pipeline.source.columns.aggregate_id)), "type": aggregate_type}
    value = sql.SQL("hashtextextended({id}, hashtextextended({type}, 0))").format(**names)
    if fields := pipeline.partition_fields:
        # Unlike a cast to text, the hash of a row is immutable for every type, as an index requires.
        cases = [
            sql.SQL("when {} then hash_record_extended(row({}), 0)").format(sql.Literal(name), sql.Identifier(field))
            for name, field in fields.items()
        ]
        value = sql.SQL("case {} {} else {} end").format(aggregate_type, sql.SQL(" ").join(cases), value)
    return sql.SQL("({} & {})").format(value, sql.Literal(BUCKETS - 1))
