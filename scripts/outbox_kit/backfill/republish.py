"""The newest state of chosen aggregates, written into the outbox again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from outbox_kit.backfill.newest_states import States, open_states
from outbox_kit.backfill.session import LOCK_SECONDS, Session, despite_deadlocks, open_session
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.progress import Progress

EVENT_TYPE = "republish"
BATCH = 500
SHOWN = 10
# While the table lock is awaited, every writer waits behind it.
TABLE_LOCK_SECONDS = 2.0


def republish(
    deployment: Deployment,
    aggregate_type: str,
    keys: Iterable[str],
    progress: Progress,
    *,
    tombstones: bool = False,
    delete: bool = False,
    lock_seconds: float = LOCK_SECONDS,
) -> int:
    """Write one outbox row per key, with the aggregate's newest state; returns how many were written.

    A key whose row is gone gets a tombstone with `tombstones`; else RefusedError lists it, after all others
    were written. Raises ConfigurationError, RefusedError, RejectedError, UnreachableError.
    """
    written: set[str] = set()
    with open_session(deployment, lock_seconds=lock_seconds) as session:
        states = open_states(session.connection, deployment.pipeline, aggregate_type, delete=delete)
        wanted = states.canonical(session.connection, list(keys))
        gone: list[str] = []
        for chunk in _chunks(sorted(wanted)):
            locked, found = despite_deadlocks()(_states, session, states, chunk)
            written |= found
            gone += [key for key in chunk if key not in locked]
            progress(f"{aggregate_type}: {len(written)} of {len(wanted)} written")
        if tombstones and gone:
            patient = Session(deployment, session.connection, min(lock_seconds, TABLE_LOCK_SECONDS))
            for chunk in _chunks(gone):
                written |= despite_deadlocks()(_tombstones, patient, states, chunk)
                progress(f"{aggregate_type}: {len(written)} of {len(wanted)} written, tombstones among them")
    _refuse_missing(states, [key for key in wanted if key not in written], len(written), tombstones=tombstones)
    return len(written)


def _states(session: Session, states: States, keys: Sequence[str]) -> tuple[set[str], set[str]]:
    with session.transaction(f"rows of {states.backfill.table}"):
        published = states.publish(session.connection, keys, EVENT_TYPE)
    return set(published.locked), set(published.written)


def _tombstones(session: Session, states: States, keys: Sequence[str]) -> set[str]:
    with session.transaction(f"table {states.backfill.table}"):
        return set(states.bury(session.connection, keys, EVENT_TYPE))


def _refuse_missing(states: States, missing: list[str], written: int, *, tombstones: bool) -> None:
    if not missing:
        return
    shown = ", ".join(missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
    raise RefusedError(
        f"{len(missing)} of the keys have no row in {states.backfill.table}, or its query leaves them out: {shown}; "
        f"{written} others were written",
        "a tombstone needs the partition field, which no outbox row of the key knows; or change the query"
        if tombstones
        else "for aggregates that are gone on purpose: --tombstones",
    )


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(keys)
    while chunk := list(islice(remaining, BATCH)):
        yield chunk
