"""What the stack needs to know of a part: how to prepare it, run it, and tell that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from outbox_kit.stack.layout import Layout
from outbox_kit.stack.state import StackState
from outbox_kit.waiting import Seen

DEBEZIUM = "io.debezium.connector.postgresql.PostgresConnector"
ROUTER = "io.outboxkit.smt.OutboxRouter"


@dataclass(frozen=True)
class Options:
    """How the Connect worker is equipped."""

    plugin_folders: tuple[Path, ...] = (Path("build/runtime/connect-plugins"), Path("smt/target/plugin"))
    """Folders of Connect's plugin.path, relative to the project root; each must exist."""
    required_plugins: tuple[str, ...] = (DEBEZIUM, ROUTER)
    """Classes that the worker must list before it counts as ready."""
    plugin_discovery: str = "service_load"
    """Connect's plugin.discovery; plugins without a service manifest need `hybrid_warn`."""


@dataclass(frozen=True)
class Program:
    """A process for Supervisor to run."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: str = "TERM"
    stop_seconds: int = 20
    stop_group: bool = True


@dataclass(frozen=True)
class Context:
    """What the parts are built from."""

    layout: Layout
    state: StackState
    options: Options
    java: Path | None
    """None when no part of the selection needs it."""


class Part(Protocol):
    """One part of the stack."""

    name: str
    after: tuple[str, ...]
    """Parts that must answer before this one is started."""
    seconds: float
    """How long it may take from its start until it answers."""

    def prepare(self) -> None:
        """Write configuration and, the first time, data. Runs before anything is started."""

    def program(self) -> Program:
        """Return the process to run."""

    def look(self) -> Seen[bool]:
        """Ask once whether the part answers; never raises for a part that does not yet."""
