"""One look at everything that an operator asks first. Never raises for a system that does not answer: says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from outbox_kit import lsn
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.config_diff import short_fingerprint
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError
from outbox_kit.operations import dead_letters
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import wal_positions as postgres_positions

T = TypeVar("T")
TAKES_OVER = (
    "tasks of a worker that went away start on another one after the workers' session.timeout.ms and "
    "scheduled.rebalance.max.delay.ms: look again then"
)


@dataclass(frozen=True)
class Task:
    """One task of the connector and the worker that runs it (host:port)."""

    state: str
    worker: str


@dataclass(frozen=True)
class PipelineStatus:
    """The pipeline now. Positions are bytes; None where there is none, or where nobody answered."""

    connector: str
    asked: bool = True
    """Whether Connect answered; without it nothing of the connector is known."""
    state: str | None = None
    worker: str = ""
    tasks: list[Task] = field(default_factory=list)
    cause: str = ""
    position: int | None = None
    fingerprint: str = ""
    live_epoch: int = 0
    slot: str = ""
    slot_row: dict[str, Any] = field(default_factory=dict)
    dead_letters: int | None = None
    locked_epoch: int | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What an operator should see to, though the pipeline works: workers that do not answer."""

    @property
    def confirmed(self) -> int | None:
        """Where the slot stands."""
        return self.slot_row.get("confirmed_flush")

    @property
    def lag(self) -> int | None:
        """Bytes of WAL between the slot and the server."""
        server = self.slot_row.get("server")
        return None if server is None or self.confirmed is None else server - self.confirmed

    @property
    def retained(self) -> int | None:
        """Bytes of WAL that the server keeps for the slot."""
        server, restart = self.slot_row.get("server"), self.slot_row.get("restart")
        return None if server is None or restart is None else server - restart

    def to_dict(self) -> dict[str, Any]:
        """The document of `--output json`."""
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
                "name": self.slot,
                "active": self.slot_row.get("active"),
                "wal_status": self.slot_row.get("wal_status"),
                "lag_bytes": self.lag,
                "retained_bytes": self.retained,
            },
            "positions": {
                "connector": lsn.pair(self.position),
                "slot": lsn.pair(self.confirmed),
                "server": lsn.pair(self.slot_row.get("server")),
            },
            "dead_letters_unacknowledged": self.dead_letters,
            "source_epoch": {"lock": self.locked_epoch, "connector": self.live_epoch},
            "problems": self.problems,
            "notes": self.notes,
        }


def read_status(deployment: Deployment) -> PipelineStatus:
    """Look at connector, slot, dead letters and lock file. Raises ConfigurationError for a broken lock file."""
    lock = deployment.lock()
    problems: list[str] = []
    connector = _guarded(problems, lambda: _connector(deployment)) or {}
    slot = _guarded(problems, lambda: _slot(deployment)) or {}
    unacknowledged = _guarded(problems, lambda: dead_letters.count(deployment))
    found = PipelineStatus(
        connector=deployment.pipeline.connector.name,
        asked=bool(connector),
        **connector,
        slot=deployment.pipeline.source.slot,
        slot_row=slot,
        dead_letters=unacknowledged,
        locked_epoch=lock.source_epoch if lock else None,
        problems=problems,
        notes=_silent_workers(deployment) if connector else [],
    )
    if connector:
        problems += _connector_problems(found)
    if slot:
        problems += _slot_problems(found)
        if found.notes and not slot["active"]:
            found.notes.append(TAKES_OVER)
    return found


def _guarded(failures: list[str], look: Callable[[], T]) -> T | None:
    try:
        return look()
    except OutboxKitError as error:
        failures.append(error.message)
        return None


def _connector(deployment: Deployment) -> dict[str, Any]:
    actual = connect_state.read_actual(deployment.connect, deployment.pipeline.connector.name)
    status = actual.status
    workers = status.workers if status else ()
    tasks = status.tasks if status else ()
    failed = status is not None and connect_lifecycle.has_failed(status)
    return {
        "state": status.connector if status else None,
        "worker": workers[0] if workers else "",
        "tasks": [Task(state, worker) for state, worker in zip(tasks, workers[1:], strict=False)],
        "cause": connect_lifecycle.root_cause(status.traces) if status and failed else "",
        "position": connect_state.position(actual) or None,
        "fingerprint": short_fingerprint(actual.config) if actual.config else "",
        "live_epoch": connect_state.epoch(actual.config),
    }


def _silent_workers(deployment: Deployment) -> list[str]:
    """Addresses of workers where nobody answers; another one did."""
    notes: list[str] = []
    service = deployment.environment.connect
    for url in service.addresses if service.workers else ():
        with closing(deployment.connect.at(url)) as worker:
            _guarded(notes, worker.root)
    return notes


def _slot(deployment: Deployment) -> dict[str, Any]:
    source = deployment.environment.source
    with postgres_client.connected(source, source.verifier) as connection:
        return postgres_positions.positions(connection, deployment.pipeline.source.slot)


def _connector_problems(found: PipelineStatus) -> list[str]:
    if found.state is None:
        return [f"connector {found.connector} does not exist, or has no status yet"]
    states = [found.state, *(task.state for task in found.tasks)]
    problems = []
    if set(states) != {"RUNNING"} or not found.tasks:
        problems.append(f"connector {found.connector} is {found.state}, tasks: {', '.join(states[1:]) or 'none'}")
    if found.locked_epoch is not None and found.live_epoch != found.locked_epoch:
        problems.append(f"the connector writes source epoch {found.live_epoch}, the lock file has {found.locked_epoch}")
    return problems


def _slot_problems(found: PipelineStatus) -> list[str]:
    row = found.slot_row
    if row["confirmed_flush"] is None:
        return [f"slot {found.slot} does not exist"]
    problems = []
    if not row["active"]:
        problems.append(f"nobody reads slot {found.slot}")
    if row["wal_status"] in ("lost", "unreserved"):
        problems.append(f"the WAL of slot {found.slot} is {row['wal_status']}")
    return problems
