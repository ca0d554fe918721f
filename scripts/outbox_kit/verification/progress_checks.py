"""Check that the slot, the offset and the heartbeat advance. A connector can be RUNNING without making progress."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from outbox_events.errors import OutboxError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.connector_config import parse_int
from outbox_kit.connect.lifecycle import is_running, status_text
from outbox_kit.connect.state import ActualConnector, read_actual, read_without_offsets, stored_lsn
from outbox_kit.deployment import Deployment
from outbox_kit.postgres.replication_slot import Slot, read_slot
from outbox_kit.results.checks import Check, Finding, Rules, Severity, Status, evaluate, skip_rules
from outbox_kit.verification.live_state import LiveState, connect_database

# Time limit: HEARTBEAT_COUNT heartbeat intervals, plus GRACE_S for delays on a busy machine.
HEARTBEAT_COUNT, GRACE_S, POLL_S = 2, 5.0, 0.2
HEARTBEAT_MS = 10_000
NO_PROGRESS_HINT = (
    "fix the other failed checks first, such as kafka.topics, path.partitions or kafka.in-sync; if no other check "
    "failed, run `outbox restart`, and check the log of the Connect worker"
)


@dataclass(frozen=True)
class Sample:
    """State of the slot, heartbeat topic and connector at one time. If `is_seeded` is true, `apply` wrote the offset.

    A value is None if it does not exist or could not be read.
    """

    slot: Slot | None
    heartbeat_offset: int | None
    offset_lsn: int | None
    status: ConnectorStatus | None
    is_seeded: bool = False

    @property
    def confirmed_flush(self) -> int | None:
        return self.slot.confirmed_flush if self.slot else None

    @property
    def reader_pid(self) -> int | None:
        """Process id of the session that reads the slot."""
        return self.slot.active_pid if self.slot else None


@dataclass(frozen=True)
class Samples:
    """Samples of one run. A connector with a seeded offset reconnects at the first row, before sample `after_canary`.

    `hanging_transactions` maps topics and partitions to the last stable offsets of the transactions that were open
    before sample `first` and are still open after sample `last`.
    """

    first: Sample
    after_canary: Sample
    last: Sample
    seconds: float
    hanging_transactions: dict[tuple[str, int], int] = field(default_factory=dict)
    bootstrap_servers: str = ""


RULES = Rules[Samples]()


@RULES.rule(
    "postgres.slot-moving",
    condition="the confirmed LSN of the slot advances; otherwise the server retains WAL until its disk is full",
    remedy=NO_PROGRESS_HINT,
)
def _slot(samples: Samples) -> Finding:
    return _lsn_advance_finding(samples, samples.first.confirmed_flush, samples.last.confirmed_flush)


@RULES.rule("kafka.heartbeat", condition="heartbeats from the database arrive on their topic", remedy=NO_PROGRESS_HINT)
def _heartbeat(samples: Samples) -> Finding:
    return _advance_finding(samples, samples.first.heartbeat_offset, samples.last.heartbeat_offset)


@RULES.rule("connect.offsets-moving", condition="the connector commits its offset", remedy=NO_PROGRESS_HINT)
def _offset(samples: Samples) -> Finding:
    return _lsn_advance_finding(samples, samples.first.offset_lsn, samples.last.offset_lsn)


PROGRESS_RULES = tuple(RULES)


@RULES.rule(
    "kafka.open-transactions",
    condition="no transaction remains open on a topic of the pipeline; consumers with read_committed cannot read past "
    "the first record of an open transaction",
    remedy="find the producer with kafka-transactions; stop another producer, then wait for its transaction.timeout.ms "
    "or abort its transaction",
)
def _open_transactions(samples: Samples) -> Finding:
    expected = "no transaction that remains open between two samples"
    hanging = sorted(samples.hanging_transactions.items())
    if not hanging:
        return Finding(True, expected, expected)
    if samples.first.offset_lsn is None or (samples.last.offset_lsn or 0) <= samples.first.offset_lsn:
        # The transaction can be the connector's own, because the connector commits its offset with its records.
        return Finding(None, "the connector makes no progress", expected)
    actual = ", ".join(f"{topic}-{number} from offset {offset}" for (topic, number), offset in hanging)
    transactions = f"kafka-transactions --bootstrap-server {samples.bootstrap_servers}"
    places = [(f"--topic {topic} --partition {number}", offset) for (topic, number), offset in hanging]
    producers = ", ".join(f"`{transactions} describe-producers {place}`" for place, _ in places)
    aborts = ", ".join(f"`{transactions} abort {place} --start-offset {offset}`" for place, offset in places)
    remedy = (
        f"find the producer with {producers}. Stop another producer, then wait for its transaction.timeout.ms or run "
        f"{aborts}. Do not abort a transaction of the connector, of a relay or of a service: if the coordinator has "
        "completed it, a broker has not written its marker (KAFKA-20734), and the producer's next transaction in the "
        "partition ends it"
    )
    return Finding(False, f"open transaction: {actual}", expected, remedy)


@RULES.rule(
    "connect.restarts",
    condition="the task does not restart between two samples",
    remedy="check the log of the Connect worker for errors of the task",
    severity=Severity.WARNING,
)
def _restarts(samples: Samples) -> Finding:
    first, last = samples.after_canary, samples.last
    pids = f"{first.reader_pid}, then {last.reader_pid}"
    changes = [f"PID of the WAL sender: {pids}"] if first.reader_pid != last.reader_pid else []
    if not (is_running(first.status) and is_running(last.status)):
        changes.append(f"task status {status_text(first.status)}, then {status_text(last.status)}")
    return Finding(not changes, "; ".join(changes) or "no restart", "no restart between two samples")


def _advance_finding(samples: Samples, first_value: int | None, last_value: int | None) -> Finding:
    expected = f"a higher value within {samples.seconds:g} s"
    if first_value is None or last_value is None:
        return Finding(None, "the value does not exist or could not be read", expected)
    return Finding(last_value > first_value, f"{first_value}, then {last_value}", expected)


def _lsn_advance_finding(samples: Samples, first_lsn: int | None, last_lsn: int | None) -> Finding:
    """Compare two LSNs. With a seeded offset, Debezium does not confirm an LSN until it has processed a transaction."""
    finding = _advance_finding(samples, first_lsn, last_lsn)
    if finding.passed is False and samples.last.is_seeded:
        return Finding(None, "no event since the offset was seeded", finding.expected, "write an outbox row")
    return finding


def check(live_state: LiveState, *, canary_sent: bool) -> list[Check]:
    """Wait for progress, for at most about two heartbeats. If the connector is not running, every check is unknown.

    `canary_sent` means that a canary was sent after the state was read.
    """
    first = _first_sample(live_state)
    reason = _no_progress_reason(first)
    if first is None or reason:
        return skip_rules(RULES, reason)
    seconds = timeout_s(live_state)
    after_canary = last = first

    def poll() -> Observation[bool]:
        nonlocal last
        last = sample(live_state.deployment, with_offsets=first.offset_lsn is not None)
        checks = evaluate(PROGRESS_RULES, Samples(first, after_canary, last, seconds))
        stalled_ids = [check.id for check in checks if check.status is Status.FAIL]
        return Observation(None if stalled_ids else True, f"no progress: {', '.join(stalled_ids)}")

    try:
        if canary_sent:
            after_canary = sample(live_state.deployment, with_offsets=first.offset_lsn is not None)
        with suppress(WaitTimeoutError):  # the rules report the missing progress
            wait_for("slot, offset and heartbeat to advance", poll, seconds=seconds, interval=POLL_S)
        hanging = _hanging_transactions(live_state)  # after the last sample, whose offset proves progress
    except OutboxError as error:
        return skip_rules(RULES, error.message)
    servers = live_state.deployment.environment.kafka.bootstrap_servers
    return evaluate(RULES, Samples(first, after_canary, last, seconds, hanging, servers))


def _hanging_transactions(live_state: LiveState) -> dict[tuple[str, int], int]:
    """Return those open transactions in the live state that are still open. Raises UnreachableError, RejectedError."""
    kafka = live_state.kafka.value
    if kafka is None or not kafka.open_transactions:
        return {}
    topics = {name: kafka.actual[name] for name, _ in kafka.open_transactions}
    open_transactions = live_state.deployment.kafka.open_transactions(topics)
    return dict(kafka.open_transactions.items() & open_transactions.items())


def _first_sample(live_state: LiveState) -> Sample | None:
    """Return the live state as a sample, or None if a system could not be read."""
    database, connect = live_state.postgres.value, live_state.connect.value
    if database is None or live_state.kafka.value is None or connect is None or "connectors" in connect.observed.errors:
        return None
    actual, with_offsets = connect.observed.actual, live_state.offset_lsn is not None
    return _sample(database.actual.slot, live_state.heartbeat_offset, actual, with_offsets=with_offsets)


def can_progress(live_state: LiveState) -> bool:
    """Return whether the connector was running and reading its slot when the state was read."""
    return not _no_progress_reason(_first_sample(live_state))


def _no_progress_reason(first: Sample | None) -> str:
    """Return the reason why no progress is possible, or an empty text if progress is possible."""
    if first is None:
        return "the state of a system could not be read"
    if not is_running(first.status):
        return "the connector is not running"
    if first.confirmed_flush is None or first.reader_pid is None:
        return "the slot is not active"
    return ""


def timeout_s(live_state: LiveState) -> float:
    """Return the time limit of a wait for progress, which is two heartbeats and a delay."""
    interval_ms = parse_int((live_state.config or {}).get("heartbeat.interval.ms"), HEARTBEAT_MS)
    return HEARTBEAT_COUNT * interval_ms / 1000 + GRACE_S


def sample(deployment: Deployment, *, with_offsets: bool) -> Sample:
    """Sample the slot, heartbeat topic, connector and, optionally, offset. Raises UnreachableError, RejectedError."""
    pipeline = deployment.pipeline
    with connect_database(deployment) as connection:
        slot = read_slot(connection, pipeline.source.slot)
    heartbeat_offset = deployment.kafka.end_offset(pipeline.heartbeat_topic)
    read_connector = read_actual if with_offsets else read_without_offsets
    actual = read_connector(deployment.connect, pipeline.connector.name)
    return _sample(slot, heartbeat_offset, actual, with_offsets=with_offsets)


def _sample(slot: Slot | None, heartbeat_offset: int | None, actual: ActualConnector, *, with_offsets: bool) -> Sample:
    offsets = [entry["offset"] for entry in actual.offsets if entry.get("offset")]
    # An offset that `apply` wrote does not contain `messageType`. Debezium adds `messageType` with the first event.
    is_seeded = with_offsets and all("messageType" not in offset for offset in offsets)
    return Sample(slot, heartbeat_offset, stored_lsn(actual) if with_offsets else None, actual.status, is_seeded)
