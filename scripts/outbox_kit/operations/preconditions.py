"""Check whether a connector may start, and whether tombstones may be written.

A connector may start if lock file, database, slot and offset are consistent. `stuck --resend` and
`republish --tombstones` limit their tombstones, because if the business table is empty by mistake or the query is
wrong, every key on a topic looks like a deleted aggregate.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from outbox_events.errors import RefusedError
from outbox_events.text import plural, shortened_list
from outbox_kit.backfill.newest_states import open_states
from outbox_kit.backfill.session import LOCK_TIMEOUT_S, open_session
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.lag import read_positions
from outbox_kit.deployment.preconditions import refuse_skipped_rows, require_unchanged_source
from outbox_kit.deployment.source_epochs import refuse_relayed_states
from outbox_kit.kafka.latest_records import LatestRecords
from outbox_kit.results import Reporter
from outbox_kit.results.repair_commands import RECOVER_HINT

MAX_LISTED_KEYS = 5
DEFAULT_LIMIT = "5%"
LIMIT_PATTERN = re.compile(r"(?P<percent>\d+(\.\d+)?)%|(?P<number>\d+)")


@dataclass(frozen=True)
class Deletions:
    """Tombstones that a command would write for the keys of one aggregate type."""

    aggregate_type: str
    keys: tuple[str, ...]
    """Keys without an aggregate in the database, in order."""
    topic: str
    deleted_states: int
    """Number of `keys` that have a state on the topic."""
    topic_states: int
    """Number of all keys that have a state on the topic."""
    table: str
    table_is_empty: bool

    @property
    def percent(self) -> float:
        """Percentage of the topic's states that the tombstones delete."""
        return 100 * self.deleted_states / self.topic_states if self.topic_states else 0.0

    @property
    def text(self) -> str:
        """Text before the confirmation: counts, the share of the topic's states, and the first keys."""
        empty = ", which is empty" if self.table_is_empty else ""
        return (
            f"{plural(len(self.keys), 'tombstone')} for {self.aggregate_type}, because the keys have no aggregate in "
            f"{self.table}{empty}: they delete {self.deleted_states} of {self.topic_states} states "
            f"({self.percent:.1f} %) on topic {self.topic}; keys: {shortened_list(self.keys, MAX_LISTED_KEYS)}"
        )


@dataclass(frozen=True)
class DeletionLimit:
    """Value of --max-deletions: a percentage of the states on the topic, or a number of tombstones per topic."""

    percent: float | None = None
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> DeletionLimit:
        """Parse `5%` or `200`. Raises ValueError."""
        match = LIMIT_PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"found {text!r}; must be a percentage such as 5% or a number such as 200")
        if match["number"] is not None:
            return cls(number=int(match["number"]))
        return cls(percent=float(match["percent"]))

    def allows(self, deletions: Deletions) -> bool:
        """Return whether `deletions` may be written. If the business table is empty, a percentage allows none."""
        if self.number is None and deletions.table_is_empty:
            return False
        return self.allows_count(len(deletions.keys), deletions.percent)

    def allows_count(self, count: int, percent: float) -> bool:
        """Return whether `count` tombstones, which are `percent` of the states on the topic, are allowed."""
        return count <= self.number if self.number is not None else percent <= (self.percent or 0)


def read_deletions(
    deployment: Deployment, aggregate_type: str, keys: Iterable[str], progress: Reporter, *, exact: bool = False
) -> Deletions | None:
    """Return the tombstones for the `keys` that have no aggregate; None if every key has an aggregate.

    If `exact` is set, `keys` come from records and are not normalized. The topic is read if a key has no aggregate.
    Raises ConfigurationError, RefusedError, RejectedError, UnreachableError.
    """
    with open_session(deployment, [aggregate_type], lock_seconds=LOCK_TIMEOUT_S) as session:
        connection = session.connection
        states = open_states(connection, deployment.pipeline, aggregate_type, delete=False)
        with session.transaction(f"table {states.backfill.table}"):
            requested_keys = list(keys) if exact else states.normalize_keys(connection, list(keys))
            deleted_keys = tuple(states.deleted_keys(connection, requested_keys))
            table_is_empty = states.table_is_empty(connection)
    if not deleted_keys:
        return None
    topic = deployment.pipeline.topic_of(aggregate_type)
    progress(f"read topic {topic}, to compare {plural(len(deleted_keys), 'tombstone')} with its states")
    records = LatestRecords(deployment.kafka, topic)
    records.read()
    topic_keys = records.keys_with_state()
    deleted_states = len(topic_keys & set(deleted_keys))
    return Deletions(
        aggregate_type, deleted_keys, topic, deleted_states, len(topic_keys), states.backfill.table, table_is_empty
    )


def read_allowed_deletions(
    deployment: Deployment,
    keys: Mapping[str, Collection[str]],
    limit: DeletionLimit,
    progress: Reporter,
    *,
    exact: bool = False,
) -> list[Deletions]:
    """Return the results of read_deletions() for each type in `keys`. Raises RefusedError if they exceed the limit."""
    found = (read_deletions(deployment, name, keys[name], progress, exact=exact) for name in keys)
    deletions = [entry for entry in found if entry is not None]
    refuse_excessive(deletions, limit)
    return deletions


def refuse_excessive(deletions: Collection[Deletions], limit: DeletionLimit) -> None:
    """Raise RefusedError if the tombstones for a topic exceed the limit."""
    excessive = [entry for entry in deletions if not limit.allows(entry)]
    if excessive:
        number = max(len(entry.keys) for entry in deletions)
        tables = ", ".join(sorted({entry.table for entry in excessive}))
        raise RefusedError(
            f"nothing was written, because --max-deletions does not allow {'; '.join(e.text for e in excessive)}",
            f"check that {tables} and the `backfill` query return all aggregates; if these aggregates are deleted, "
            f"add --max-deletions {number}",
        )


def refuse_unsafe_start(deployment: Deployment, actual: ActualConnector, *, skip_rows: bool = False) -> None:
    """Raise RefusedError if a connector that starts now could lose rows. `skip_rows` accepts an offset that skips rows.

    `actual` must be read before the call, so that its offset cannot be ahead of the server's LSN.
    """
    name = deployment.pipeline.connector.name
    lock = deployment.lock()
    if lock is not None and lock.unfinished == "recover":
        raise RefusedError("a recovery was interrupted", RECOVER_HINT)
    lock, database = require_unchanged_source(deployment)
    refuse_relayed_states(deployment.pipeline, lock, database)
    connect_state.refuse_lower_epoch(name, actual, lock, increased=False)
    connect_state.refuse_inconsistent_offset(name, actual, lock, database.wal_position)
    if not connect_state.stored_lsn(actual):
        raise RefusedError(
            f"connector {name!r} has no offset: it would start at the server's LSN, and undelivered "
            "rows before this LSN would be lost",
            "run `outbox apply`, which stores the slot's LSN as the connector's offset",
        )
    positions = read_positions(deployment, actual)
    connect_state.refuse_advanced_slot(name, deployment.pipeline.source.slot, positions.connector, positions.confirmed)
    if not skip_rows:
        refuse_skipped_rows(deployment, lock, database.slot, positions.connector)
