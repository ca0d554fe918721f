"""Where connector, slot and server stand, and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_kit import lsn
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RECOVER, RefusedError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import wal_positions as postgres_positions


@dataclass(frozen=True)
class Positions:
    """Positions in bytes; None where there is none. `offsets` are Debezium's own, as Connect has them."""

    offsets: list[dict[str, Any]]
    connector: int | None
    confirmed: int | None
    restart: int | None
    server: int

    @property
    def passed(self) -> bool:
        """Whether the slot is beyond the connector: what lies between is lost to it."""
        return self.confirmed is not None and self.connector is not None and self.confirmed > self.connector

    def meaning(self) -> list[str]:
        """What the differences mean, in sentences."""
        if self.confirmed is None or self.restart is None:
            return ["there is no slot: rows since its last position are lost to the connector"]
        sentences = [f"the server keeps {lsn.size(self.server - self.restart)} of WAL for the slot"]
        if self.connector is None:
            sentences.append("the connector has no position: `outbox apply` seeds it with the slot's")
            return sentences
        if self.connector > self.server:
            sentences.append("the connector is ahead of the server, which was restored: rows would be skipped")
        elif self.passed:
            between = lsn.size(self.confirmed - self.connector)
            sentences.append(f"the slot is {between} ahead of the connector: somebody else moved it, rows are lost")
        else:
            unread, sent = lsn.size(self.server - self.connector), lsn.size(self.connector - self.confirmed)
            sentences.append(f"the connector has {unread} of WAL to read yet, of the outbox or of other tables")
            sentences.append(f"{sent} of WAL are in Kafka and not yet confirmed to the slot: a reset sends them again")
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """The document of `--output json`."""
        return {
            "offsets": self.offsets,
            "connector": lsn.pair(self.connector),
            "slot_confirmed_flush": lsn.pair(self.confirmed),
            "slot_restart": lsn.pair(self.restart),
            "server": lsn.pair(self.server),
            "meaning": self.meaning(),
        }


def read_positions(deployment: Deployment, actual: ActualConnector) -> Positions:
    """The connector's position was read before the server's: so it cannot have passed it."""
    with postgres_client.connected(deployment.environment.source) as connection:
        row = postgres_positions.positions(connection, deployment.pipeline.source.slot)
    found = _positions(actual, row)
    if found.passed:  # while the connector runs, both have moved since
        found = _positions(connect_state.read_actual(deployment.connect, deployment.pipeline.connector.name), row)
    return found


def _positions(actual: ActualConnector, row: postgres_client.Row) -> Positions:
    return Positions(
        offsets=actual.offsets,
        connector=connect_state.position(actual) or None,
        confirmed=row["confirmed_flush"],
        restart=row["restart"],
        server=row["server"],
    )


@dataclass(frozen=True)
class Move:
    """The connector's position before and after a reset, and what that does to rows."""

    before: int | None
    after: int
    confirmed: int

    @property
    def between(self) -> tuple[int, int]:
        """From and to, in bytes; without a position of its own the connector would read all that the slot holds."""
        before = self.confirmed if self.before is None else self.before
        return min(before, self.after), max(before, self.after)

    @property
    def countable(self) -> bool:
        """Whether the slot still holds all of it."""
        return self.between[0] >= self.confirmed

    @property
    def loses(self) -> bool:
        """Forward: what is in between is never read."""
        return self.after > (self.confirmed if self.before is None else self.before)

    def words(self, rows: int | None) -> str:
        """What is sent again or lost, in a sentence."""
        start, end = self.between
        if start == end:
            return "nothing is sent again, and nothing is lost"
        amount = "an uncounted number of outbox rows" if rows is None else f"{rows} outbox rows"
        where = f"{amount} in {lsn.size(end - start)} of WAL between {lsn.text(start)} and {lsn.text(end)}"
        if self.loses:
            return f"{where} are SKIPPED: lost to the connector, until they are republished"
        return f"{where} are sent again: the same events under the same event_id, which change no state"


def rows_moved(deployment: Deployment, move: Move) -> int | None:
    """Outbox rows that a move concerns; None where they cannot be counted: slot in use, or the WAL is gone."""
    after, upto = move.between
    if upto == after or not move.countable:
        return 0 if upto == after else None
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        return postgres_positions.undelivered_rows(connection, source, after=after, upto=upto)


def refuse_unreachable(positions: Positions, target: int, *, skip: bool) -> Move:
    """A position that the slot can serve, and that leaves no row out unless `skip`. Raises RefusedError."""
    if positions.confirmed is None:
        raise RefusedError("there is no slot to read from", RECOVER)
    if target < positions.confirmed:
        raise RefusedError(
            f"{lsn.both(target)} is below the slot's confirmed position {lsn.both(positions.confirmed)}: PostgreSQL "
            "starts there whatever is asked for, and may have removed the WAL before it",
            "leave out --from to start at the slot's position; what is older: `outbox republish`",
        )
    if target > positions.server:
        raise RefusedError(
            f"{lsn.both(target)} is beyond the server's {lsn.both(positions.server)}: PostgreSQL would skip every "
            "row up to there without a word",
            "the file is of another server, or of a time before a restore: leave out --from",
        )
    move = Move(positions.connector, target, positions.confirmed)
    if move.loses and not skip:
        raise RefusedError(
            f"{lsn.both(target)} is ahead of the connector, which stands at {lsn.both(positions.connector)}: "
            f"{move.words(None)}",
            "with --skip-rows it is done all the same; republish the aggregates concerned afterwards",
        )
    return move
