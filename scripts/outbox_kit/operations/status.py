"""Read the status of a pipeline: connector, slot, dead letters, lock file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from outbox_events.contract import lsn
from outbox_events.errors import OutboxError
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.client import root_cause
from outbox_kit.connect.config_diff import short_fingerprint
from outbox_kit.connect.lifecycle import has_failed
from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import Slot, read_slot

T = TypeVar("T")
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
    """State of the pipeline. `position` is the LSN of the connector's offset. `problems` includes failed reads."""

    connector: str
    connect_responded: bool = True
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
    dead_letters: int | None = None
    lock_file_epoch: int | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Conditions that do not affect the pipeline yet, for example a worker that does not respond."""

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
            },
            "positions": {
                "connector": lsn.as_json(self.position),
                "slot": lsn.as_json(self.confirmed),
                "server": lsn.as_json(self.server),
            },
            "dead_letters_unacknowledged": self.dead_letters,
            "source_epoch": {"lock": self.lock_file_epoch, "connector": self.actual_epoch},
            "problems": self.problems,
            "notes": self.notes,
        }


def read_status(deployment: Deployment) -> PipelineStatus:
    """Read the connector, slot, dead letters and lock file. Raises ConfigurationError for an invalid lock file."""
    lock = deployment.lock()
    problems: list[str] = []
    connector = _try_read(problems, lambda: _read_connector(deployment)) or {}
    slot, server = _try_read(problems, lambda: _read_slot(deployment)) or (None, None)
    unacknowledged = _try_read(problems, lambda: dead_letter_topic.count(deployment.kafka, deployment.pipeline))
    status = PipelineStatus(
        connector=deployment.pipeline.connector.name,
        connect_responded=bool(connector),
        **connector,
        slot_name=deployment.pipeline.source.slot,
        slot=slot,
        server=server,
        dead_letters=unacknowledged,
        lock_file_epoch=lock.source_epoch if lock else None,
        problems=problems,
        notes=_worker_errors(deployment) if connector else [],
    )
    if connector:
        problems += _connector_problems(status)
    if server is not None:
        problems += [*_slot_problems(status), *_offset_problems(status, server)]
        if status.notes and slot and not slot.active:
            status.notes.append(REBALANCE_NOTE)
    return status


def _try_read(messages: list[str], read: Callable[[], T]) -> T | None:
    """Return the result of `read`. On an error, add its message to `messages` and return None."""
    try:
        return read()
    except OutboxError as error:
        messages.append(error.message)
        return None


def _read_connector(deployment: Deployment) -> dict[str, Any]:
    actual = connect_state.read_actual(deployment.connect, deployment.pipeline.connector.name)
    status = actual.status
    workers = status.workers if status else ()
    task_states = status.task_states if status else ()
    return {
        "state": status.connector_state if status else None,
        "worker": workers[0] if workers else "",
        "tasks": [Task(state, worker) for state, worker in zip(task_states, workers[1:], strict=False)],
        "cause": root_cause(status.traces) if status and has_failed(status) else "",
        "position": connect_state.stored_lsn(actual) or None,
        "fingerprint": short_fingerprint(actual.config) if actual.config else "",
        "actual_epoch": connect_state.epoch(actual.config),
    }


def _worker_errors(deployment: Deployment) -> list[str]:
    """Return one error message for each worker that does not respond."""
    messages: list[str] = []
    connect = deployment.environment.connect
    for url in connect.addresses if connect.workers else ():
        with closing(deployment.connect.for_worker(url)) as worker:
            _try_read(messages, worker.worker_info)
    return messages


def _read_slot(deployment: Deployment) -> tuple[Slot | None, int]:
    source = deployment.environment.source
    with postgres_client.connected(source, source.verifier) as connection:
        slot = read_slot(connection, deployment.pipeline.source.slot)
        return slot, int(postgres_client.read_server(connection)["wal_position"])


def _connector_problems(status: PipelineStatus) -> list[str]:
    if status.state is None:
        return [f"connector {status.connector} does not exist, or has no status yet"]
    task_states = [task.state for task in status.tasks]
    problems = []
    if {status.state, *task_states} != {"RUNNING"} or not task_states:
        problems.append(f"connector {status.connector} is {status.state}, tasks: {', '.join(task_states) or 'none'}")
    actual_epoch, lock_file_epoch = status.actual_epoch, status.lock_file_epoch
    if lock_file_epoch is not None and actual_epoch != lock_file_epoch:
        problems.append(f"the connector writes source epoch {actual_epoch}, but the lock file has {lock_file_epoch}")
    return problems


def _offset_problems(status: PipelineStatus, server: int) -> Iterator[str]:
    """Yield a problem if PostgreSQL has not reached the offset's LSN. `server` was read after the offset."""
    if status.position is not None and status.position > server:
        yield (
            f"the offset of connector {status.connector} is {lsn.describe(status.position)}, beyond the WAL of the "
            f"server at {lsn.describe(server)}: PostgreSQL skips rows up to the offset"
        )


def _slot_problems(status: PipelineStatus) -> list[str]:
    if status.slot is None:
        return [f"slot {status.slot_name} does not exist"]
    problems = []
    if not status.slot.active:
        problems.append(f"slot {status.slot_name} is not active")
    if status.slot.wal_status in ("lost", "unreserved"):
        problems.append(f"the WAL of slot {status.slot_name} is {status.slot.wal_status}")
    return problems
