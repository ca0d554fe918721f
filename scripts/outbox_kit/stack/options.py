"""What a caller may change about the stack; the defaults are what `outbox stack up` runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
