"""Check in every run of `verify` that the newest outbox rows have records, because a slot can confirm rows without any.

The newest rows are compared with the records since the oldest of them. A row without a record is only a suspect: all
rows of its aggregate, the dead letters, the records that arrive until the slot has confirmed these rows, and the entire
topic (within a time limit) are read then. This needs the login source.admin, as `verify --states` does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from outbox_events.contract.source_sequence import WalPosition
from outbox_events.errors import WaitTimeoutError
from outbox_events.text import plural, shortened_list
from outbox_events.waiting import Deadline, Observation, wait_for
from outbox_kit.delivery.proof import first_versions, is_confirmed
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.checks import KafkaState
from outbox_kit.kafka.latest_records import LatestRecord, LatestRecords
from outbox_kit.operations.state_comparison import POLL_INTERVAL_S, StuckAggregate, stuck_row
from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.aggregate_queries import latest_events
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.postgres.recent_events import MAX_ROWS, recent_events
from outbox_kit.postgres.replication_slot import is_confirmed_by, read_slot
from outbox_kit.results import Reporter
from outbox_kit.results.checks import Check, Finding, Rules, Status, evaluate, skip_rules
from outbox_kit.verification.live_state import LiveState, ReadResult, connect_database, try_read
from outbox_kit.verification.progress_checks import can_progress, timeout_s
from outbox_kit.verification.state_checks import COMPLETE_REMEDY, MAX_LISTED, stuck_remedy

OLDER_THAN_S, QUERY_S = 60.0, 5.0
# Time limits for the newest records of all topics, and for the entire topics of suspects.
MAX_READ_S, MAX_FULL_READ_S = 2.0, 10.0
# A service whose clock is ahead can write a created_at that is later than the timestamp of the record.
CLOCK_TOLERANCE_S = 300.0
CAUSE = (
    "the slot has confirmed them, so the connector will not send them: another client read or advanced the slot, the "
    "publication or the connector config omitted them, or their records were deleted"
)
OPEN_TRANSACTIONS = "kafka.open-transactions"
# If the remedy of another failed check has one of these commands, it also sends the lost rows.
RESENDING_COMMANDS = ("`outbox recover", "`outbox stuck --resend", "`outbox backfill --restart")


@dataclass
class RecentRows:
    """Newest row of each aggregate, and the records of the topics by type. `is_complete` means that all were read."""

    rows: list[Row]
    topics: dict[str, LatestRecords]
    is_complete: bool = True

    def read_topics(self) -> None:
        """Read the new records until the time limit. Raises UnreachableError, RejectedError."""
        deadline, self.is_complete = Deadline(MAX_READ_S), False
        with suppress(WaitTimeoutError):
            for topic in self.topics.values():
                topic.read(seconds=deadline.seconds_left)
            self.is_complete = True

    def read_entirely(self, names: Collection[str]) -> None:
        """Read the topics of these types from the beginning, because created_at can be later than the record."""
        deadline = Deadline(MAX_FULL_READ_S)
        with suppress(WaitTimeoutError):
            for name in names:
                topic = replace(self.topics[name], since=None, event_ids=set())
                topic.read(seconds=deadline.seconds_left)
                self.topics[name] = topic

    def has_record(self, row: Row) -> bool:
        """Return whether the record of the row, or of a later row of its aggregate, was read."""
        topic = self.topics.get(row["aggregate_type"])
        return topic is not None and not (topic.event_ids or set()).isdisjoint(row["event_ids"])

    def newest_record(self, row: Row) -> LatestRecord | None:
        """Return the newest record of the row's key."""
        return self.topics[row["aggregate_type"]].by_key.get(row["key"])


@dataclass(frozen=True)
class ComparedRows:
    """Result of the comparison. `counts` contains the numbers of compared rows by type; `lost` rows are among them.

    `unsent` is the number of rows without a record that the slot has not confirmed, and `unread` that of the rows whose
    topic was not read completely. `remedy` refers to another check, whose remedy also sends the lost rows.
    """

    pipeline: Pipeline
    counts: Counter[str]
    lost: list[StuckAggregate] = field(default_factory=list)
    unsent: int = 0
    unread: int = 0
    remedy: str = ""


RULES = Rules[ComparedRows]()


@RULES.rule(
    "path.recent-rows",
    condition="the newest outbox rows that the slot has confirmed have a record or a dead letter (compared for at most "
    f"{MAX_ROWS:,} aggregates, if a row is older than {OLDER_THAN_S:g} s)",
    remedy=f"stop the other clients of the slot; {COMPLETE_REMEDY}",
)
def _recent_rows(compared: ComparedRows) -> Finding:
    pipeline, count = compared.pipeline, compared.counts.total()
    total = count + compared.unsent + compared.unread
    types = ", ".join(f"{name} {compared.counts[name]}" for name in pipeline.aggregates)
    seen = f"{count} of {plural(total, 'row')} older than {OLDER_THAN_S:g} s compared ({types})"
    expected = "a record or a dead letter for every row"
    if compared.lost:
        keys = [f"{entry.aggregate_type} {entry.key} ({entry.kind})" for entry in compared.lost]
        seen = f"{plural(len(keys), 'lost row')}: {shortened_list(keys, MAX_LISTED)}; {CAUSE}; {seen}"
        remedy = f"stop other clients of slot {pipeline.source.slot}; {stuck_remedy(pipeline, compared.lost)}"
        return Finding(False, seen, expected, compared.remedy or remedy)
    seen += f"; the slot has not confirmed {compared.unsent}" if compared.unsent else ""
    seen += f"; {compared.unread} have no topic, or records that were not read" if compared.unread else ""
    return Finding(None if compared.unsent else True, seen, expected, "see connect.running and postgres.slot-moving")


def read(live_state: LiveState) -> ReadResult[RecentRows]:
    """Read the newest rows and their records. Add the records to `unsequenced` in the state of Kafka.

    There is no result if a system could not be read, or if there is no outbox table.
    """
    database, kafka = live_state.postgres.value, live_state.kafka.value
    has_table = live_state.deployment.pipeline.source.uses_table and database is not None and database.actual.columns
    return try_read(lambda: _read(live_state.deployment, kafka)) if kafka and has_table else ReadResult(None)


def _read(deployment: Deployment, kafka: KafkaState) -> RecentRows:
    pipeline, since = deployment.pipeline, dict[str, float]()
    with connect_database(deployment) as connection:
        rows = recent_events(connection, pipeline.source, pipeline.aggregates, older_than=OLDER_THAN_S)
    for row in rows:
        name = row["aggregate_type"]
        since[name] = min(row["seconds"] - CLOCK_TOLERANCE_S, since.get(name, math.inf))
    topics = {name: pipeline.topic_of(name) for name in since if pipeline.topic_of(name) in kafka.unsequenced}
    latest = {
        name: LatestRecords(deployment.kafka, topic, event_ids=set(), since=since[name])
        for name, topic in topics.items()
    }
    recent = RecentRows(rows, latest)
    recent.read_topics()
    for name, topic in topics.items():
        kafka.unsequenced[topic].update(latest[name].unsequenced)
    return recent


def check(
    live_state: LiveState, recent: ReadResult[RecentRows], others: Iterable[Check], progress: Reporter
) -> list[Check]:
    """Return the check. If rows have no record, wait for at most about two heartbeats.

    `others` are the other checks. If the remedy of one of them also sends the lost rows, the remedy refers to it.
    """
    if recent.value is None and recent.error is None:
        return skip_rules(RULES, "there is no outbox table, or a system could not be read")
    rows = recent.value
    result = try_read(lambda: _compare(live_state, rows, progress)) if rows else ReadResult(None, recent.error)
    if result.value is None:
        message, hint = (result.error.message, result.error.hint) if result.error else ("", "")
        return [RULES[0].check(Finding(None, message, RULES[0].condition, hint))]
    failed = [entry for entry in others if entry.status is Status.FAIL]
    if result.value.lost and OPEN_TRANSACTIONS in (entry.id for entry in failed):
        return skip_rules(RULES, f"see {OPEN_TRANSACTIONS}: the records may follow an open transaction")
    causes = [entry.id for entry in failed if any(command in entry.remedy for command in RESENDING_COMMANDS)]
    remedy = f"see {causes[0]}: its remedy can also send these rows; then run `outbox verify` again" if causes else ""
    return evaluate(RULES, replace(result.value, remedy=remedy))


def _compare(live_state: LiveState, recent: RecentRows, progress: Reporter) -> ComparedRows:
    """Return the result of the comparison. Raises UnreachableError, RejectedError, WaitTimeoutError."""
    missing, unproven, is_sent = [row for row in recent.rows if not recent.has_record(row)], list[Row](), True
    suspects = [row for row in missing if recent.is_complete and row["aggregate_type"] in recent.topics]
    if suspects:
        progress("search for the records of the newest outbox rows")
        with postgres_client.connected(live_state.deployment.environment.source, seconds=QUERY_S) as connection:
            unproven, is_sent = _wait_for_proof(live_state, recent, connection, suspects)
    counts = Counter(row["aggregate_type"] for row in recent.rows)
    counts.subtract(row["aggregate_type"] for row in missing if row not in suspects)
    counts.subtract(row["aggregate_type"] for row in unproven if not is_sent)
    lost = [stuck_row(row["aggregate_type"], row, recent.newest_record(row)) for row in unproven if is_sent]
    unsent, unread = len(unproven) - len(lost), len(missing) - len(suspects)
    return ComparedRows(live_state.deployment.pipeline, counts, lost, unsent, unread)


def _wait_for_proof(
    live_state: LiveState, recent: RecentRows, connection: Connection, suspects: list[Row]
) -> tuple[list[Row], bool]:
    """Return the rows that remain without a proof of delivery, and whether the slot has confirmed them."""
    deployment, pipeline = live_state.deployment, live_state.deployment.pipeline
    with postgres_client.snapshot(connection) as lsn:
        rows = list(_newest_rows(pipeline, connection, suspects))
    position = None if lsn is None else WalPosition(live_state.lock.source_epoch, lsn)
    dead_letters = first_versions(deployment.dead_letters().read(list_all=True, seconds=MAX_FULL_READ_S)).keys()
    is_sent = False

    def is_proven(row: Row) -> bool:
        has_dead_letter = not dead_letters.isdisjoint(row["event_ids"])
        return has_dead_letter or recent.has_record(row) or is_confirmed(row, recent.newest_record(row), position)

    def poll() -> Observation[bool]:
        nonlocal rows, is_sent
        recent.read_topics()
        rows = [row for row in rows if not is_proven(row)]
        is_done = not rows or is_sent
        # This takes effect at the next poll: consumers see records shortly after the commit of their offset.
        is_sent = recent.is_complete and is_confirmed_by(read_slot(connection, pipeline.source.slot), lsn)
        return Observation(is_done or None, plural(len(rows), "row"))

    seconds = timeout_s(live_state) if can_progress(live_state) else 0.0
    try:
        wait_for("the records of the newest outbox rows", poll, seconds=seconds, interval=POLL_INTERVAL_S)
    except WaitTimeoutError:
        return rows, False
    recent.read_entirely({row["aggregate_type"] for row in rows})
    return [row for row in rows if not is_proven(row)], True


def _newest_rows(pipeline: Pipeline, connection: Connection, suspects: list[Row]) -> Iterator[Row]:
    """Read all rows of the aggregates, because rows outside of the last pages can be newer."""
    for name, aggregate in pipeline.aggregates.items():
        keys = [row["key"] for row in suspects if row["aggregate_type"] == name]
        if keys:
            limits = {"older_than": OLDER_THAN_S, "seconds": QUERY_S}
            rows = latest_events(connection, pipeline.source, name, aggregate, keys=keys, **limits)
            yield from ({**row, "aggregate_type": name} for row in rows)
