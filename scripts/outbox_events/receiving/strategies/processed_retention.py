"""Delete old ids from the table of processed events, and check that they are no longer needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ResourceType
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_events.kafka import topic_requests
from outbox_events.kafka.topic_requests import REQUEST_S, admin_client, kafka_error
from outbox_events.receiving.retries import Retries
from outbox_events.receiving.strategies.processed_table import DEFAULT_TABLE

DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
KEEP = timedelta(days=7)
ROWS_PER_PAGE = 64
# pg_partition_tree returns no rows for a table that is not partitioned.
SHARDS = """
    select n.nspname, c.relname, (pg_relation_size(c.oid) / current_setting('block_size')::int)::int
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and (
      c.oid = %(table)s::text::regclass
      or c.oid in (select relid from pg_partition_tree(%(table)s::text::regclass) where isleaf))
    order by 1, 2"""
DELETE = """
    delete from {} where ctid >= {} and ctid < {} and processed_at < {}
    and ({group}::text is null or consumer_group = {group}::text)"""


def expire(
    connection: psycopg.Connection[Any],
    group: str | None = None,
    keep: timedelta = KEEP,
    batch: int = 10_000,
    *,
    table: str = DEFAULT_TABLE,
) -> int:
    """Delete the ids that are older than `keep`, for one group or all groups. Return the number of deleted ids.

    The table is read once, without an index, in transactions of about `batch` rows. If an event is received after its
    id was deleted, it is applied again: see `check_retention`. Raises RefusedError if a transaction is open.
    """
    if connection.info.transaction_status != TransactionStatus.IDLE:
        message = "expire commits after each batch, but the connection is in a transaction"
        raise RefusedError(message, "commit first, or use a separate connection")
    quoted = sql.Identifier(*table.split(".")).as_string(connection)
    pages, deleted = max(1, batch // ROWS_PER_PAGE), 0
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        with connection.transaction():
            shards = cursor.execute(SHARDS, {"table": quoted}).fetchall()
            ((now,),) = cursor.execute("select now()").fetchall()  # the server's clock also sets `processed_at`
            cutoff = now - keep
        for schema, name, size in shards:
            for first in range(0, size, pages):
                with connection.transaction():
                    cursor.execute(_delete(schema, name, (first, first + pages), cutoff, group))
                    deleted += cursor.rowcount
    return deleted


def _delete(schema: str, name: str, pages: tuple[int, int], cutoff: datetime, group: str | None) -> sql.Composed:
    first, end = (sql.SQL("{}::tid").format(sql.Literal(f"({page},0)")) for page in pages)
    return sql.SQL(DELETE).format(
        sql.Identifier(schema, name), first, end, sql.Literal(cutoff), group=sql.Literal(group)
    )


def check_retention(
    settings: Mapping[str, Any], topics: Sequence[str], keep: timedelta, retries: Retries | None = None
) -> None:
    """Raise ConfigurationError if an event could be received again after its id was deleted.

    `settings` are the settings of the Receiver. A topic keeps a record for up to retention.ms plus segment.ms, because
    it deletes whole segments. A compacted topic keeps the newest record of a key indefinitely. For such a topic, the
    check covers a restart from committed offsets, which expire after offsets.retention.minutes without consumers. A
    group that starts at the topic's beginning receives events whose ids were deleted. Raises UnreachableError.
    """
    admin = admin_client(settings)
    offsets: timedelta | None = None
    for topic in topics:
        config = _config(admin, ResourceType.TOPIC, topic)
        if "delete" in config["cleanup.policy"]:
            if int(config["retention.ms"]) < 0:
                _require(keep, None, f"topic {topic} keeps records indefinitely (retention.ms=-1)")
            names = ("retention.ms", "segment.ms")
            horizon = timedelta(milliseconds=sum(int(config[name]) for name in names))
            values = " + ".join(f"{name}={config[name]}" for name in names)
            _require(keep, horizon, f"topic {topic} keeps records for up to {horizon} ({values})")
        else:
            offsets = offsets or _offsets_retention(admin)
            minutes = int(offsets.total_seconds() / 60)
            reason = f"topic {topic} is compacted, and a group without consumers keeps its offsets for {offsets}"
            _require(keep, offsets, f"{reason} (offsets.retention.minutes={minutes})")
    longest = _longest_retry(retries or Retries())
    _require(keep, longest, f"an event can be retried for up to {longest}")


def _require(keep: timedelta, horizon: timedelta | None, reason: str) -> None:
    """Raise ConfigurationError if `keep` is shorter than `horizon`. If `horizon` is None, it is unlimited."""
    if horizon is None or keep < horizon:
        message = f"ids of processed events are kept for {keep}, but {reason}"
        fix = "limit retention.ms of the topic" if horizon is None else f"set keep to at least {horizon}"
        raise ConfigurationError(message, fix)


def _longest_retry(retries: Retries) -> timedelta:
    """Return the sum of the delays between all attempts, each with the maximum jitter."""
    delays = (
        min(retries.first_delay_s * retries.factor**number, retries.max_delay_s)
        for number in range(min(retries.attempts - 1, 1000))
    )
    return timedelta(seconds=sum(delays) * (1 + retries.jitter))


def _offsets_retention(admin: AdminClient) -> timedelta:
    """Return how long the brokers keep the committed offsets of a group without consumers."""
    try:
        broker = next(iter(admin.list_topics(timeout=REQUEST_S).brokers))
    except KafkaException as error:
        raise UnreachableError(f"cannot list the brokers: {kafka_error(error).str()}") from None
    return timedelta(minutes=int(_config(admin, ResourceType.BROKER, str(broker))["offsets.retention.minutes"]))


def _config(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
    """Return the settings of a topic or broker."""
    try:
        return topic_requests.configs(admin, [name], kind)[name]
    except KafkaException as error:
        message = f"cannot read the settings of {kind.name.lower()} {name}: {kafka_error(error).str()}"
        if kafka_error(error).code() in DENIED:
            hint = f"grant DescribeConfigs on the {kind.name.lower()}"
            raise ConfigurationError(message, hint) from None
        raise UnreachableError(message, "check the name, bootstrap.servers and the ACLs (DescribeConfigs)") from None
