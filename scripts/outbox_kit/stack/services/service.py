"""Define the base class of the stack's services, with preparation, process and readiness check."""

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
    """Options of the services. `outbox stack up` uses the defaults."""

    plugin_folders: tuple[Path, ...] = ()
    """Folders of Connect's plugin.path, besides those of Debezium and the transforms. Every folder must exist.

    They are relative to the project root.
    """
    required_plugins: tuple[str, ...] = (DEBEZIUM, ROUTER)
    """Plugin classes that the worker must list before it is considered ready."""
    plugin_discovery: str = "service_load"
    """Connect's setting plugin.discovery. Plugins without a service manifest require `hybrid_warn`."""
    jvm_options: str = ""
    """Additional JVM options for all services, separated by spaces."""


@dataclass(frozen=True)
class Program:
    """A process that Supervisor runs. If `user` is None, it runs as the user of supervisord."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: str = "TERM"
    stop_seconds: int = 20
    stop_group: bool = True


@dataclass(frozen=True)
class Context:
    """Values that every service receives on construction."""

    layout: Layout
    state: StackState
    options: Options
    java: Path | None
    """The `java` executable, or None if none of the selected services needs Java."""


class Service(ABC):
    """One service of the stack."""

    name: str
    component: str = ""
    """Component that contains the files of the service; by default, it has the name of the service."""
    requires: tuple[str, ...] = ()
    """Services that must be ready before this one is started."""
    start_seconds: float
    """Maximum time between start and readiness, in seconds."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.layout = context.layout
        self.state = context.state

    @abstractmethod
    def prepare(self) -> None:
        """Write the configuration and, before the first start, the data. Called before any service is started."""

    @abstractmethod
    def program(self) -> Program:
        """Return the process to run."""

    @abstractmethod
    def check(self) -> Observation[bool]:
        """Check once whether the service is ready. Does not raise while the service is starting."""
