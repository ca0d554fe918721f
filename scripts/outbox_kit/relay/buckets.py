"""Buckets of outbox rows: what a process of the relay leases, and what one transactional producer sends in order."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.pipeline import Source

BUCKETS = 16
"""Number of buckets, and thus the highest number of processes that send. A change would move aggregates."""


def bucket_of_row(source: Source) -> sql.Composed:
    """Return the bucket of a row, a hash of aggregate type and id. A row without them has one too: a dead letter."""
    text = sql.SQL("coalesce({}::text, '')")
    return sql.SQL("(hashtextextended({}, hashtextextended({}, 0)) & {})").format(
        text.format(sql.Identifier(source.columns.aggregate_id)),
        text.format(sql.Identifier(source.columns.aggregate_type)),
        sql.Literal(BUCKETS - 1),
    )


def transactional_id(prefix: str, bucket: int) -> str:
    """Return the transactional.id of the producer of a bucket."""
    return f"outbox-relay.{prefix}.{bucket}"
