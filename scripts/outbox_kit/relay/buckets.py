"""Divide outbox rows into buckets. Relay processes lease buckets, and one producer sends a bucket's rows in order."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.pipeline import Source

BUCKETS = 16
"""Number of buckets, and thus the maximum number of sending processes. A change moves aggregates to other buckets."""


def bucket_of_row(source: Source) -> sql.Composed:
    """Return an expression for a row's bucket, a hash of aggregate type and id. Nulls are hashed as empty strings."""
    text = sql.SQL("coalesce({}::text, '')")
    return sql.SQL("(hashtextextended({}, hashtextextended({}, 0)) & {})").format(
        text.format(sql.Identifier(source.columns.aggregate_id)),
        text.format(sql.Identifier(source.columns.aggregate_type)),
        sql.Literal(BUCKETS - 1),
    )


def transactional_id(prefix: str, bucket: int) -> str:
    """Return the transactional.id of a bucket's producer."""
    return f"outbox-relay.{prefix}.{bucket}"
