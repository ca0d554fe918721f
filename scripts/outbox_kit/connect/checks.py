"""What `outbox verify` checks in Kafka Connect."""

from __future__ import annotations

from typing import Any

from outbox_kit.checking import Check, check
from outbox_kit.connect.apply import is_running, root_cause
from outbox_kit.connect.state import INSTALL, ActualConnector, different_keys, missing_plugins


def run(
    name: str,
    desired: dict[str, str],
    actual: ActualConnector,
    *,
    plugins: list[str],
) -> list[Check]:
    """Plugins, state, config and offsets of the connector."""
    return [
        _plugins(desired, plugins),
        _running(name, actual),
        _config(name, desired, actual),
        _offsets(actual.offsets),
    ]


def _plugins(desired: dict[str, str], plugins: list[str]) -> Check:
    missing = missing_plugins(desired, plugins)
    return check(
        "connect.plugins",
        not missing,
        seen=f"missing: {', '.join(missing)}" if missing else "all installed",
        expected="every class that the config names",
        remedy=INSTALL,
    )


def _running(name: str, actual: ActualConnector) -> Check:
    status = actual.status
    seen = status.words if status else f"no connector {name}"
    if status and status.traces:
        seen = f"{seen}; {root_cause(status.traces)}"
    return check(
        "connect.running",
        is_running(status),
        seen=seen,
        expected="connector RUNNING, every task RUNNING",
        remedy="FAILED: mend the cause, then restart; PAUSED or STOPPED: resume; see docs/operations.md",
    )


def _config(name: str, desired: dict[str, str], actual: ActualConnector) -> Check:
    keys = different_keys(desired, actual.config) if actual.config is not None else [f"no connector {name}"]
    return check(
        "connect.config",
        not keys,
        seen=f"differs in {', '.join(keys)}" if keys else "as rendered",
        expected="as rendered from the files",
        remedy="run `outbox apply`",
    )


def _offsets(offsets: list[dict[str, Any]]) -> Check:
    positions = [entry["offset"].get("lsn") for entry in offsets if entry.get("offset")]
    return check(
        "connect.offsets",
        any(position is not None for position in positions),
        seen=f"lsn {positions[0]}" if positions else "no offset",
        expected="an offset with an lsn",
        remedy="without one, a restart can skip rows: stop the connector and run `outbox apply`",
    )
