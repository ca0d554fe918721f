"""Implement `outbox republish`, which writes the latest states of selected aggregates to the outbox table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice

from outbox_events.contract.partitioner import partition_of
from outbox_events.errors import RefusedError
from outbox_events.text import plural, shortened_list
from outbox_kit.backfill.newest_states import AggregateStates, open_states
from outbox_kit.backfill.session import LOCK_TIMEOUT_S, Session, open_session, report_committed_batches, retry_deadlocks
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.latest_records import LatestRecord, LatestRecords
from outbox_kit.results import Reporter

EVENT_TYPE = "republish"
BATCH_SIZE = 500
MAX_LISTED_KEYS = 10
# Maximum wait for the lock on a business table. All writers of the table also wait during this time.
TABLE_LOCK_TIMEOUT_S = 2.0


def republish(
    deployment: Deployment,
    aggregate_type: str,
    keys: Iterable[str],
    progress: Reporter,
    *,
    tombstones: Collection[str] | None = None,
    delete: bool = False,
    exact: bool = False,
    lock_seconds: float = LOCK_TIMEOUT_S,
) -> int:
    """For each key, write one outbox row with the aggregate's latest state. Return the number of rows.

    `tombstones` contains the keys for which a tombstone is written if they have no state. It is None if tombstones were
    not requested. If the type has a partition field, the partitions of these keys are read from the topic. With
    `exact`, the keys are record keys, and are not normalized.

    Raises RefusedError with a list of the keys that could not be written, after all other keys have been written. Also
    raises ConfigurationError, RejectedError, UnreachableError and WaitTimeoutError.
    """
    written_keys: set[str] = set()
    with (
        open_session(deployment, [aggregate_type], lock_seconds=lock_seconds) as session,
        report_committed_batches(progress),
    ):
        states = open_states(session.connection, deployment.pipeline, aggregate_type, delete=delete)
        requested_keys = list(keys) if exact else states.normalize_keys(session.connection, list(keys))
        for batch in _batches(sorted(states.row_keys(session.connection, requested_keys))):
            written_keys |= retry_deadlocks(partial(_write_states, session, states, batch))
            progress(f"{aggregate_type}: {len(written_keys)} of {len(requested_keys)} written")
        deleted_keys = sorted(set(requested_keys).intersection(tombstones or ()) - written_keys)
        for written_tombstones in _write_all_tombstones(session, states, aggregate_type, deleted_keys):
            written_keys |= written_tombstones
            progress(f"{aggregate_type}: {len(written_keys)} of {len(requested_keys)} written with tombstones")
    _refuse_unwritten_keys(states, requested_keys, written_keys, tombstones=tombstones is not None)
    return len(written_keys)


def _write_states(session: Session, states: AggregateStates, keys: Sequence[str]) -> set[str]:
    with session.transaction(f"rows of {states.backfill.table}"):
        return set(states.write_states(session.connection, keys, EVENT_TYPE))


def _write_all_tombstones(
    session: Session, states: AggregateStates, aggregate_type: str, keys: Sequence[str]
) -> Iterator[set[str]]:
    """Write the tombstones in batches, and yield the written keys of each batch."""
    if not keys:
        return
    deployment = session.deployment
    partition_values = read_partition_values(deployment, aggregate_type, keys) if states.partition_field else {}
    table_session = Session(deployment, session.connection, min(session.lock_seconds, TABLE_LOCK_TIMEOUT_S))
    for batch in _batches(keys):
        yield retry_deadlocks(partial(_write_tombstones, table_session, states, batch, partition_values))


def read_partition_values(deployment: Deployment, aggregate_type: str, keys: Iterable[str]) -> dict[str, str]:
    """Read the entire topic. Return a mapping from each key on the topic to a value of the partition field.

    The value comes from the header of the record if the field is one of `source.header_columns`.

    Raises UnreachableError, RejectedError, WaitTimeoutError, and RefusedError if the topic's partition count differs
    from the pipeline file.
    """
    pipeline = deployment.pipeline
    aggregate, topic = pipeline.aggregates[aggregate_type], pipeline.topic_of(aggregate_type)
    field = aggregate.partition_field
    records = LatestRecords(deployment.kafka, topic, header=field if field in pipeline.source.header_columns else None)
    records.read()
    if records.partition_count != aggregate.partitions:
        raise RefusedError(
            f"topic {topic} has {records.partition_count} partitions, "
            f"but the pipeline file has {aggregate.partitions}, so the partitions of tombstones are unknown",
            f"correct aggregates.{aggregate_type}.partitions in the pipeline file, and run `outbox apply`",
        )
    return {key: _value(records.by_key[key], aggregate.partitions) for key in keys if key in records.by_key}


def _value(record: LatestRecord, partition_count: int) -> str:
    """Return the record's header value if it maps to the record's partition, or else the first number that does."""
    if record.header and partition_of(record.header.encode(), partition_count) == record.partition:
        return record.header
    return next(
        str(number) for number in count() if partition_of(str(number).encode(), partition_count) == record.partition
    )


def _write_tombstones(
    session: Session, states: AggregateStates, keys: Sequence[str], partition_values: Mapping[str, str]
) -> set[str]:
    with session.transaction(f"table {states.backfill.table}"):
        return set(states.write_tombstones(session.connection, keys, EVENT_TYPE, partition_values))


def _refuse_unwritten_keys(states: AggregateStates, keys: list[str], written: set[str], *, tombstones: bool) -> None:
    unwritten = [key for key in keys if key not in written]
    if not unwritten:
        return
    listed_keys = shortened_list(unwritten, MAX_LISTED_KEYS)
    raise RefusedError(
        f"{plural(len(unwritten), 'key')} not written: {listed_keys} (no row in {states.backfill.table}, no state in "
        "the result of the query, or a trigger that omits the outbox row); "
        f"{plural(len(written), 'other key')} written",
        "change the query to return a state, or omit keys that have neither an outbox row nor a record on the topic: "
        "their partition field is unknown, and they do not need a tombstone"
        if tombstones
        else "change the query to return a state; for a deleted aggregate, add --tombstones",
    )


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(keys)
    while batch := list(islice(iterator, BATCH_SIZE)):
        yield batch
