"""republish: write the latest states of selected aggregates to the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from outbox_kit.backfill.newest_states import AggregateStates, WrittenStates, open_states
from outbox_kit.backfill.session import LOCK_TIMEOUT_S, Session, open_session, retry_deadlocks
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.progress import Reporter, plural

EVENT_TYPE = "republish"
BATCH_SIZE = 500
MAX_LISTED_KEYS = 10
# Limit of the wait for the lock of a business table. During this wait all writers of the table wait, too.
TABLE_LOCK_TIMEOUT_S = 2.0


def republish(
    deployment: Deployment,
    aggregate_type: str,
    keys: Iterable[str],
    progress: Reporter,
    *,
    tombstones: bool = False,
    delete: bool = False,
    lock_seconds: float = LOCK_TIMEOUT_S,
) -> int:
    """Write one outbox row per key, with the aggregate's latest state; return the number of rows.

    With `tombstones`, write a tombstone for each key without a business row. After all other keys were written, a
    RefusedError lists keys without an outbox row. Also raises ConfigurationError, RejectedError, UnreachableError.
    """
    written_keys: set[str] = set()
    with open_session(deployment, lock_seconds=lock_seconds) as session:
        states = open_states(session.connection, deployment.pipeline, aggregate_type, delete=delete)
        requested_keys = states.normalize_keys(session.connection, list(keys))
        missing_keys: list[str] = []
        for batch in _batches(sorted(requested_keys)):
            written_states = retry_deadlocks()(_write_states, session, states, batch)
            written_keys |= set(written_states.written_keys)
            missing_keys += [key for key in batch if key not in set(written_states.locked_keys)]
            progress(f"{aggregate_type}: {len(written_keys)} of {len(requested_keys)} written")
        if tombstones and missing_keys:
            table_session = Session(deployment, session.connection, min(lock_seconds, TABLE_LOCK_TIMEOUT_S))
            for batch in _batches(missing_keys):
                written_keys |= retry_deadlocks()(_write_tombstones, table_session, states, batch)
                progress(f"{aggregate_type}: {len(written_keys)} of {len(requested_keys)} written with tombstones")
    _refuse_unwritten_keys(states, requested_keys, written_keys, tombstones=tombstones)
    return len(written_keys)


def _write_states(session: Session, states: AggregateStates, keys: Sequence[str]) -> WrittenStates:
    with session.transaction(f"rows of {states.backfill.table}"):
        return states.write_states(session.connection, keys, EVENT_TYPE)


def _write_tombstones(session: Session, states: AggregateStates, keys: Sequence[str]) -> set[str]:
    with session.transaction(f"table {states.backfill.table}"):
        return set(states.write_tombstones(session.connection, keys, EVENT_TYPE))


def _refuse_unwritten_keys(states: AggregateStates, keys: list[str], written: set[str], *, tombstones: bool) -> None:
    unwritten = [key for key in keys if key not in written]
    if not unwritten:
        return
    listed_keys = ", ".join(unwritten[:MAX_LISTED_KEYS]) + (", ..." if len(unwritten) > MAX_LISTED_KEYS else "")
    raise RefusedError(
        f"{plural(len(unwritten), 'key')} not written, because {states.backfill.table} has no row of the key, or the "
        f"query does not return the key: {listed_keys}; {plural(len(written), 'other key')} written",
        "change the query to return the key; for a deleted aggregate, insert an outbox row with its partition field"
        if tombstones
        else "change the query to return the key; for a deleted aggregate, add --tombstones",
    )


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(keys)
    while batch := list(islice(iterator, BATCH_SIZE)):
        yield batch
