"""republish: write the latest states of selected aggregates to the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from outbox_kit.backfill.newest_states import AggregateStates, PublishedKeys, open_states
from outbox_kit.backfill.session import LOCK_TIMEOUT_S, Session, open_session, retry_deadlocks
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.progress import Reporter, plural

EVENT_TYPE = "republish"
BATCH_SIZE = 500
MAX_LISTED = 10
# While a session waits for the table lock, all writers of the table wait too.
TABLE_LOCK_SECONDS = 2.0


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

    For a key without a business row, `tombstones` writes a tombstone. Without `tombstones`, a RefusedError lists these
    keys after the other keys were written. Raises ConfigurationError, RefusedError, RejectedError, UnreachableError.
    """
    written_keys: set[str] = set()
    with open_session(deployment, lock_seconds=lock_seconds) as session:
        states = open_states(session.connection, deployment.pipeline, aggregate_type, delete=delete)
        requested = states.normalize_keys(session.connection, list(keys))
        missing_keys: list[str] = []
        for chunk in _chunks(sorted(requested)):
            published = retry_deadlocks()(_publish, session, states, chunk)
            written_keys |= set(published.written_keys)
            missing_keys += [key for key in chunk if key not in set(published.locked_keys)]
            progress(f"{aggregate_type}: {len(written_keys)} of {len(requested)} written")
        if tombstones and missing_keys:
            table_session = Session(deployment, session.connection, min(lock_seconds, TABLE_LOCK_SECONDS))
            for chunk in _chunks(missing_keys):
                written_keys |= retry_deadlocks()(_write_tombstones, table_session, states, chunk)
                progress(f"{aggregate_type}: {len(written_keys)} of {len(requested)} written, including tombstones")
    _refuse_unwritten(states, requested, written_keys, tombstones=tombstones)
    return len(written_keys)


def _publish(session: Session, states: AggregateStates, keys: Sequence[str]) -> PublishedKeys:
    with session.transaction(f"rows of {states.backfill.table}"):
        return states.publish(session.connection, keys, EVENT_TYPE)


def _write_tombstones(session: Session, states: AggregateStates, keys: Sequence[str]) -> set[str]:
    with session.transaction(f"table {states.backfill.table}"):
        return set(states.write_tombstones(session.connection, keys, EVENT_TYPE))


def _refuse_unwritten(states: AggregateStates, requested: list[str], written: set[str], *, tombstones: bool) -> None:
    keys = [key for key in requested if key not in written]
    if not keys:
        return
    listed_keys = ", ".join(keys[:MAX_LISTED]) + (", ..." if len(keys) > MAX_LISTED else "")
    raise RefusedError(
        f"{plural(len(keys), 'key')} not written, because {states.backfill.table} has no such row or the query does "
        f"not return it: {listed_keys}; {plural(len(written), 'other key')} written",
        "insert an outbox row of the key with its partition field (a tombstone requires it), or change the query"
        if tombstones
        else "add --tombstones to write tombstones for deleted aggregates",
    )


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(keys)
    while chunk := list(islice(iterator, BATCH_SIZE)):
        yield chunk
