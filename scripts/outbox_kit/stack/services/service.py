"""Base class of the stack's services: preparation, process and readiness check of a service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outbox_events.waiting import Observation
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.state import StackState

DEBEZIUM = "io.debezium.connector.postgresql.PostgresConnector"
ROUTER = "io.outboxkit.smt.OutboxRouter"


@dataclass(frozen=True)
class Options:
    """Plugins of the Connect worker; the defaults are those of `outbox stack up`."""

    plugin_folders: tuple[Path, ...] = (Path("build/runtime/connect-plugins"), Path("smt/target/plugin"))
    """Folders of Connect's plugin.path, relative to the project root; each must exist."""
    required_plugins: tuple[str, ...] = (DEBEZIUM, ROUTER)
    """Classes that the worker must list before it is considered ready."""
    plugin_discovery: str = "service_load"
    """Connect's plugin.discovery; plugins without a service manifest need `hybrid_warn`."""


@dataclass(frozen=True)
class Program:
    """A process that Supervisor runs; as the user of supervisord if `user` is None."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: str = "TERM"
    stop_seconds: int = 20
    stop_group: bool = True


@dataclass(frozen=True)
class Context:
    """Arguments with which every service is constructed."""

    layout: Layout
    state: StackState
    options: Options
    java: Path | None
    """None when no selected service needs Java."""


class Service(ABC):
    """One service of the stack."""

    name: str
    requires: tuple[str, ...] = ()
    """Services that must be ready before this one is started."""
    start_seconds: float
    """Time limit from start to readiness, in seconds."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.layout = context.layout
        self.state = context.state

    @abstractmethod
    def prepare(self) -> None:
        """Write configuration and, the first time, data. Runs before any service is started."""

    @abstractmethod
    def program(self) -> Program:
        """Return the process to run."""

    @abstractmethod
    def check(self) -> Observation[bool]:
        """Check once whether the service is ready. Raises no exception while the service is starting."""
