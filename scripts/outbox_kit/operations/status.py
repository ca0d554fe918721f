"""Read the status of a pipeline: every system, the connector, the slot, dead letters and the lock file."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from outbox_events.contract import lsn
from outbox_events.errors import OutboxError
from outbox_events.text import format_age
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.client import root_cause
from outbox_kit.connect.config_diff import short_fingerprint
from outbox_kit.connect.lifecycle import has_failed
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline.lock import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import Slot, read_retention_limit, read_slot

T = TypeVar("T")
READ_LIMIT_S = 10.0
LATE_HEARTBEATS = 3
MIN_LATE_S = 30.0
MAX_CAUSE_CHARACTERS = 10_000
REBALANCE_NOTE = (
    "tasks of a lost worker move to another worker after session.timeout.ms plus scheduled.rebalance.max.delay.ms: "
    "run `outbox status` again after this time"
)


@dataclass(frozen=True)
class Task:
    """State of one of the connector's tasks, and the address (host:port) of the worker that runs the task."""

    state: str
    worker: str


@dataclass(frozen=True)
class PipelineStatus:
    """State of the pipeline. `position` is the LSN of the connector's offset. `problems` includes failed reads.

    `ages` contains the seconds since the newest timestamp on a topic, for `record` (all state topics), `heartbeat` and
    `dead_letter`. An age is missing if the topic has no record or could not be read.
    """

    connector: str
    pipeline: str = ""
    environment: str = ""
    database: str = ""
    connect_responded: bool = True
    registry_responded: bool = True
    offset_was_read: bool = True
    state: str | None = None
    worker: str = ""
    tasks: list[Task] = field(default_factory=list)
    cause: str = ""
    position: int | None = None
    fingerprint: str = ""
    actual_epoch: int = 0
    slot_name: str = ""
    slot: Slot | None = None
    server: int | None = None
    """WAL position of the server; None if PostgreSQL did not respond."""
    retention_limit: int | None = None
    """max_slot_wal_keep_size in bytes; None if there is no limit."""
    publication_name: str = ""
    publication_exists: bool = True
    dead_letters: int | None = None
    ages: dict[str, float] = field(default_factory=dict)
    lock_file_epoch: int | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Conditions that do not affect the pipeline yet, for example a worker that does not respond."""
    next_steps: list[str] = field(default_factory=list)
    """Commands to run, or settings to check. Later steps can become unnecessary after the first."""

    @property
    def confirmed(self) -> int | None:
        return self.slot.confirmed_flush if self.slot else None

    @property
    def lag(self) -> int | None:
        return None if self.server is None or self.confirmed is None else self.server - self.confirmed

    @property
    def retained(self) -> int | None:
        restart = self.slot.restart_lsn if self.slot else None
        return None if self.server is None or restart is None else self.server - restart

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `--output json` prints."""
        return {
            "pipeline": self.pipeline,
            "environment": self.environment,
            "database": self.database,
            "running": not self.problems,
            "connector": {
                "name": self.connector,
                "state": self.state,
                "worker": self.worker,
                "tasks": [{"id": number, **vars(task)} for number, task in enumerate(self.tasks)],
                "cause": self.cause,
                "config_fingerprint": self.fingerprint,
            },
            "slot": {
                "name": self.slot_name,
                "active": self.slot.active if self.slot else None,
                "wal_status": self.slot.wal_status if self.slot else None,
                "lag_bytes": self.lag,
                "retained_bytes": self.retained,
                "retention_limit_bytes": self.retention_limit,
            },
            "publication": {"name": self.publication_name, "exists": self.publication_exists},
            "registry_responded": self.registry_responded,
            "positions": {
                "connector": lsn.as_json(self.position),
                "slot": lsn.as_json(self.confirmed),
                "server": lsn.as_json(self.server),
            },
            "dead_letters_unacknowledged": self.dead_letters,
            "ages_s": {name: round(age, 3) for name, age in self.ages.items()},
            "source_epoch": {"lock": self.lock_file_epoch, "connector": self.actual_epoch},
            "problems": self.problems,
            "notes": self.notes,
            "next_steps": self.next_steps,
        }


def read_status(deployment: Deployment) -> PipelineStatus:
    """Read every system, each within READ_LIMIT_S per request. Raises ConfigurationError for an invalid lock file."""
    lock = deployment.lock()
    with deployment.bounded(READ_LIMIT_S) as bounded:
        errors: list[OutboxError] = []
        found = _read_systems(bounded, errors)
        notes = _worker_errors(bounded) if found["connect_responded"] else []
    source = deployment.environment.source
    status = PipelineStatus(
        pipeline=deployment.pipeline.name,
        environment=deployment.environment.name,
        database=f"{source.host}:{source.port}/{source.database}",
        connector=deployment.pipeline.connector.name,
        slot_name=deployment.pipeline.source.slot,
        publication_name=deployment.pipeline.source.publication,
        lock_file_epoch=lock.source_epoch if lock else None,
        notes=notes,
        **found,
    )
    interval = deployment.environment.connector.heartbeat_interval_ms / 1000
    problems = [*_connector_problems(status), *_database_problems(status)]
    step = _next_step(status, lock) if problems else ""
    if not problems and status.dead_letters:
        step = "run `outbox dead-letter list`"
    return replace(
        status,
        notes=[*notes, *_notes(status, interval)],
        problems=[*(error.message for error in errors), *problems],
        next_steps=[*dict.fromkeys(filter(None, [*(error.hint for error in errors), step]))],
    )


def _read_systems(deployment: Deployment, errors: list[OutboxError]) -> dict[str, Any]:
    """Return the fields of PipelineStatus that the systems determine. Add the errors of failed reads to `errors`."""
    pipeline = deployment.pipeline
    offset_errors: list[OutboxError] = []
    connector = _try_read(errors, lambda: _read_connector(deployment, offset_errors))
    database = _try_read(errors, lambda: _read_database(deployment))
    letters = _try_read(errors, lambda: deployment.dead_letters().count())
    # Not every broker supports the request for the newest timestamps, so its failure is not a problem.
    ages = None if letters is None else _try_read([], lambda: _read_ages(deployment))
    errors += offset_errors  # after the errors of Kafka, from which the worker reads the offset
    subject = pipeline.subject_of(next(iter(pipeline.aggregates)))
    registry = _try_read(errors, lambda: [deployment.registry.compatibility(subject)])
    return {
        **(connector or {}),
        **(database or {}),
        "connect_responded": connector is not None,
        "registry_responded": registry is not None,
        "dead_letters": letters,
        "ages": ages or {},
    }


def _try_read(errors: list[OutboxError], read: Callable[[], T]) -> T | None:
    """Return the result of `read`, or None after adding its error to `errors`."""
    try:
        return read()
    except OutboxError as error:
        errors.append(error)
        return None


def _read_connector(deployment: Deployment, offset_errors: list[OutboxError]) -> dict[str, Any]:
    """Read the connector. If the offset cannot be read, as when Kafka does not respond, the state is still returned."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    actual = connect_state.read_without_offsets(client, name)
    offsets = [] if actual.config is None else _try_read(offset_errors, lambda: client.offsets(name))
    status = actual.status
    workers = status.workers if status else ()
    task_states = status.task_states if status else ()
    return {
        "state": status.connector_state if status else None,
        "worker": workers[0] if workers else "",
        "tasks": [Task(state, worker) for state, worker in zip(task_states, workers[1:], strict=False)],
        "cause": root_cause(status.traces, MAX_CAUSE_CHARACTERS) if status and has_failed(status) else "",
        "position": connect_state.stored_lsn(replace(actual, offsets=offsets or [])) or None,
        "offset_was_read": offsets is not None,
        "fingerprint": short_fingerprint(actual.config) if actual.config else "",
        "actual_epoch": connect_state.epoch(actual.config),
    }


def _worker_errors(deployment: Deployment) -> list[str]:
    """Return one error message for each worker that does not respond. All workers are read at the same time."""
    connect = deployment.environment.connect
    errors: list[OutboxError] = []

    def read(url: str) -> None:
        with closing(deployment.connect.for_worker(url)) as worker:
            _try_read(errors, worker.worker_info)

    with ThreadPoolExecutor() as executor:
        list(executor.map(read, connect.addresses if connect.workers else ()))
    return sorted(error.message for error in errors)


def _read_database(deployment: Deployment) -> dict[str, Any]:
    source, names = deployment.environment.source, deployment.pipeline.source
    with postgres_client.connected(source, source.verifier, seconds=READ_LIMIT_S) as connection:
        return {
            "slot": read_slot(connection, names.slot),
            "publication_exists": postgres_client.read_publication(connection, names.publication) is not None,
            "retention_limit": read_retention_limit(connection),
            "server": int(postgres_client.read_server(connection)["wal_position"]),
        }


def _read_ages(deployment: Deployment) -> dict[str, float]:
    pipeline = deployment.pipeline
    topics: dict[str, Collection[str]] = {
        "record": [pipeline.topic_of(name) for name in pipeline.aggregates],
        "heartbeat": [pipeline.heartbeat_topic],
        "dead_letter": [pipeline.dead_letter_topic],
    }
    times = deployment.kafka.newest_times([name for names in topics.values() for name in names])
    newest = {kind: max(times.get(name, 0) for name in names) for kind, names in topics.items()}
    return {kind: max(0.0, time.time() - newest_time) for kind, newest_time in newest.items() if newest_time}


def _notes(status: PipelineStatus, heartbeat_interval_s: float) -> Iterator[str]:
    if status.notes and status.slot and not status.slot.active:
        yield REBALANCE_NOTE
    age = status.ages.get("heartbeat", 0.0)
    if status.state == "RUNNING" and age > max(LATE_HEARTBEATS * heartbeat_interval_s, MIN_LATE_S):
        yield f"the newest heartbeat is {format_age(age)} old: check with `outbox verify` that the connector progresses"


def _connector_problems(status: PipelineStatus) -> Iterator[str]:
    if not status.connect_responded:
        return
    if status.state is None:
        yield f"connector {status.connector} does not exist, or has no status yet"
        return
    task_states = [task.state for task in status.tasks]
    if {status.state, *task_states} != {"RUNNING"} or not task_states:
        yield f"connector {status.connector} is {status.state}, tasks: {', '.join(task_states) or 'none'}"
    if status.lock_file_epoch not in (None, status.actual_epoch):
        yield f"the connector writes source epoch {status.actual_epoch}, but the lock file has {status.lock_file_epoch}"


def _database_problems(status: PipelineStatus) -> Iterator[str]:
    """Yield problems of the slot, the publication and the offset. The server's LSN was read after the offset."""
    if status.server is None:
        return
    if status.slot is None:
        yield f"slot {status.slot_name} does not exist"
    elif not status.slot.active:
        yield f"slot {status.slot_name} is not active"
    if status.slot and status.slot.wal_status in ("lost", "unreserved"):
        yield f"the WAL of slot {status.slot_name} is {status.slot.wal_status}"
    if not status.publication_exists:
        yield f"publication {status.publication_name} does not exist"
    if status.position is not None and status.position > status.server:
        yield (
            f"the offset of connector {status.connector} is {lsn.describe(status.position)}, beyond the WAL of the "
            f"server at {lsn.describe(status.server)}: PostgreSQL skips rows up to the offset"
        )


def _next_step(status: PipelineStatus, lock: Lock | None) -> str:
    """Return the command that solves the problems. `recover` also starts the connector."""
    if lock is not None and lock.has_only_relay:
        return "the pipeline has only a relay: see the metrics of `outbox relay`, or docs/relay-migration.md"
    states = {status.state, *(task.state for task in status.tasks)}
    if status.connect_responded and (lock is None or lock.source is None):
        return "run `outbox apply`"
    slot_is_lost = status.slot is None or status.slot.wal_status == "lost" or not status.publication_exists
    is_unusable = status.server is not None and (slot_is_lost or (status.position or 0) > status.server)
    if is_unusable or (lock is not None and lock.unfinished == "recover"):
        return "run `outbox recover`"
    if "FAILED" in states:
        return "fix the root cause, then run `outbox restart --failed`"
    if states & {"STOPPED", "PAUSED"}:
        return "run `outbox resume`"
    wrong_epoch = status.lock_file_epoch not in (None, status.actual_epoch)
    lacks_config = status.connect_responded and (not status.state or wrong_epoch)
    return "run `outbox apply`" if lacks_config else "run `outbox verify`"
