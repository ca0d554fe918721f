"""Replay the connector's dead letters: their rows pass through the transform again, unless a newer event exists.

republish_states() writes the latest states of the aggregates instead.

For consumers, a row that is written again is newer than all other rows. Therefore a replay is refused if a newer event
of the aggregate is on the topic, in the outbox table, or in between. A newer event is found as follows:
- the topic is read after the slot has confirmed all transactions that began before the replay;
- then the table is locked, and the aggregate's rows in the table are compared with the topic;
- a gap in `seq` shows that a row was written and deleted between these two steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from psycopg import sql

from outbox_events.contract.source_sequence import UNVERSIONED
from outbox_events.errors import RefusedError
from outbox_kit import backfill
from outbox_kit.connect.lifecycle import raise_if_failed
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.delivery.outbox_rows import OF_AGGREGATE, OF_EVENTS, StoredRow, select_rows
from outbox_kit.delivery.preconditions import (
    refuse_published_deletes,
    refuse_stopped_connector,
    require_applied_source,
    require_table,
)
from outbox_kit.delivery.proof import Proof, ProofReader, is_superseded
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.preconditions import require_connector
from outbox_kit.pipeline import Lock, Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.replication_slot import wait_confirmed, wait_transactions_ended
from outbox_kit.postgres.row_sequence import last_number
from outbox_kit.recovery.resend_rows import locked_outbox
from outbox_kit.replay.replay_records import DROP_HINT, Replay
from outbox_kit.replay.write_row import insert_again
from outbox_kit.results import Reporter

COMMAND = "outbox dead-letter replay"
AGAIN_HINT = "run the command again, or send the latest state with `outbox dead-letter replay --republish`"
NEWER_HINT = f"if consumers need only the latest state, {DROP_HINT}"
NEW_ROWS: LiteralString = "select count(*) as count from {} where seq > %s"


@dataclass
class _Evidence:
    """Proofs that were read before the lock. `batch` contains the ids of the events that are replayed together."""

    proofs: Mapping[str, Proof]
    batch: set[str]

    def refuse_older(self, dead_letter: DeadLetter, kind: str, key: str, rows: Sequence[StoredRow]) -> None:
        """Raise RefusedError if the event was delivered, or if its aggregate, which has `rows`, has a newer event."""
        proof = self.proofs.get(kind)
        if proof is None:
            raise RefusedError(f"{dead_letter.place}: the row was changed while the command was running", AGAIN_HINT)
        if dead_letter.event_id in proof.event_ids:
            raise RefusedError(f"{dead_letter.place}: event {dead_letter.event_id} was already delivered", DROP_HINT)
        if is_superseded(dead_letter, proof.latest.get(key), proof.dead_letters):
            raise RefusedError(f"{dead_letter.place}: the topic has a newer record of {kind} {key}", NEWER_HINT)
        for other, proven in zip(rows, proof.proven(rows) if rows else [], strict=True):
            if other.id != dead_letter.event_id and (
                not proven or self._is_newer_dead_letter(other, dead_letter, proof)
            ):
                text = f"{dead_letter.place}: event {other.id} of {kind} {key} is newer, or not delivered yet"
                raise RefusedError(text, f"replay both with --all, or {AGAIN_HINT}")

    def _is_newer_dead_letter(self, row: StoredRow, dead_letter: DeadLetter, proof: Proof) -> bool:
        """Return whether `row` became a dead letter later, may have been replayed, and is not delivered yet."""
        is_waiting, first = row.id not in self.batch and row.id not in proof.event_ids, proof.dead_letters
        return is_waiting and first.get(row.id, UNVERSIONED) > first.get(dead_letter.event_id, UNVERSIONED)


def replay_rows(deployment: Deployment, dead_letters: Collection[DeadLetter], progress: Reporter) -> Replay:
    """Write the dead letters' rows again, with the same event ids, then acknowledge the dead letters.

    A row that is still invalid becomes a new dead letter. Raises FailedError, RefusedError, RejectedError,
    UnreachableError, WaitTimeoutError.
    """
    pipeline, result = deployment.pipeline, Replay()
    with deployment.exclusive("dead-letter replay", progress):
        lock = _require_replayable(deployment)
        with (
            postgres_client.connected(deployment.environment.source) as connection,
            postgres_client.connected(deployment.environment.source) as reader,
        ):
            number = last_number(connection, pipeline.source)
            evidence = _read_evidence(deployment, reader, lock, dead_letters, progress)
            with locked_outbox(connection, pipeline.source, COMMAND):
                _refuse_vanished_rows(connection, pipeline.source, number)
                _write_rows(connection, pipeline.source, dead_letters, evidence, result)
    places = [dead_letter.place for dead_letter in result.replayed]
    deployment.dead_letters().acknowledge_places(places)
    return result


def _require_replayable(deployment: Deployment) -> Lock:
    """Return the lock file. Raises RefusedError, and FailedError if the connector cannot confirm earlier events."""
    require_table(deployment.pipeline, "let the service write the state again")
    lock, database = require_applied_source(deployment)
    refuse_published_deletes(deployment.pipeline.source, database)
    name, actual = deployment.pipeline.connector.name, require_connector(deployment)
    raise_if_failed(name, actual.status)
    refuse_stopped_connector(name, actual)
    return lock


def _read_evidence(
    deployment: Deployment,
    connection: Connection,
    lock: Lock,
    dead_letters: Collection[DeadLetter],
    progress: Reporter,
) -> _Evidence:
    """Wait until the connector has delivered all events that were written before the call, then read the topics."""
    pipeline, source = deployment.pipeline, deployment.pipeline.source
    position = wait_transactions_ended(connection)
    postgres_client.commit_heartbeat(connection)  # in an idle database, the slot would not reach the position
    progress(f"wait until slot {source.slot} has confirmed all earlier events")
    wait_confirmed(connection, source.slot, position, pipeline.connector.name)
    rows = _rows_by_event(connection, source, dead_letters)
    reader = ProofReader(deployment, connection, position, lock.source_epoch)
    types = {entry.aggregate_type for entry in dead_letters} | {row.aggregate_type for row in rows.values()}
    batch = {dead_letter.event_id for dead_letter in dead_letters}
    return _Evidence({name: reader.of_type(name) for name in types}, batch)


def _rows_by_event(
    connection: Connection, source: Source, dead_letters: Collection[DeadLetter]
) -> dict[str, StoredRow]:
    event_ids = [dead_letter.event_id for dead_letter in dead_letters if _is_uuid(dead_letter.event_id)]
    return {row.id: row for row in select_rows(connection, source, OF_EVENTS, event_ids)}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _refuse_vanished_rows(connection: Connection, source: Source, number: int | None) -> None:
    """Raise RefusedError if rows whose `seq` is above `number` were deleted: the topics may lack their events."""
    last = last_number(connection, source)
    if number is None or last is None:
        return
    query = sql.SQL(NEW_ROWS).format(ddl.qualified_name(source.table))
    if connection.execute(query, (number,)).fetchall()[0]["count"] != last - number:
        message = f"rows of {source.table} were written and deleted while the command was running"
        raise RefusedError(message, AGAIN_HINT)


def _write_rows(
    connection: Connection,
    source: Source,
    dead_letters: Collection[DeadLetter],
    evidence: _Evidence,
    result: Replay,
) -> None:
    """Check and write the rows in the order of their events."""
    rows = _rows_by_event(connection, source, dead_letters)
    written: set[str] = set()
    for dead_letter in sorted(dead_letters, key=lambda dead_letter: (dead_letter.version, dead_letter.place)):
        try:
            if not _is_uuid(dead_letter.event_id):
                raise RefusedError(f"{dead_letter.place}: the dead letter has no event id", DROP_HINT)
            if dead_letter.event_id not in written:
                row = rows.get(dead_letter.event_id)
                kind, key = (row.aggregate_type, row.key) if row else (dead_letter.aggregate_type, dead_letter.key)
                evidence.refuse_older(dead_letter, kind, key, select_rows(connection, source, OF_AGGREGATE, kind, key))
                insert_again(connection, source, dead_letter, has_row=row is not None)
                written.add(dead_letter.event_id)
            result.replayed.append(dead_letter)
        except RefusedError as error:
            result.refused.append((dead_letter, error))


def republish_states(deployment: Deployment, dead_letters: Collection[DeadLetter], progress: Reporter) -> Replay:
    """Write the latest states of the dead letters' aggregates, then acknowledge the dead letters.

    Raises the same errors as republish(), except RefusedError, which is added to the result.
    """
    result, aggregates = Replay(), dict[tuple[str, str], list[DeadLetter]]()
    for dead_letter in dead_letters:
        aggregates.setdefault((dead_letter.aggregate_type, dead_letter.key), []).append(dead_letter)
    for (name, key), found in aggregates.items():
        try:
            if not key:
                raise RefusedError(f"{found[0].place}: the dead letter has no key", DROP_HINT)
            backfill.republish(deployment, name, [key], progress, exact=True)
        except RefusedError as error:
            result.refused += [(dead_letter, error) for dead_letter in found]
        else:
            places = [dead_letter.place for dead_letter in found]
            deployment.dead_letters().acknowledge_places(places)
            result.replayed += found
    return result
