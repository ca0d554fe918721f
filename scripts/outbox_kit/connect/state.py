"""The connector as the files want it, as Connect has it, and the difference."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from outbox_kit.changes import Change
from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.pipeline import UNKNOWN

# What some distributions answer instead of the stored value of a password, even of a placeholder.
MASK = re.compile(r"^(\*+|•+|\[hidden\])$")
# Added by the worker to what it was given.
SERVER_KEYS = frozenset({"name"})


INSTALL = "install it under the worker's plugin.path and restart the worker; see docs/smt.md"


def missing_plugins(config: dict[str, str], installed: list[str]) -> list[str]:
    """Classes that the config names and the worker does not list."""
    keys = ["connector.class", *(key for key in config if re.fullmatch(r"transforms\.\w+\.type", key))]
    return sorted({config[key] for key in keys} - set(installed))


@dataclass(frozen=True)
class ActualConnector:
    """The connector as Connect has it; `config` is None where there is none."""

    config: dict[str, str] | None
    status: ConnectorStatus | None
    offsets: list[dict[str, Any]]


def read_actual(client: ConnectClient, name: str) -> ActualConnector:
    """Config, status and offsets of one connector."""
    config = client.config(name)
    if config is None:
        return ActualConnector(None, None, [])
    return ActualConnector(config, client.status(name), client.offsets(name))


def never_ran(actual: ActualConnector, seed: dict[str, int] | None) -> bool:
    """Whether an apply died between creating the connector and resuming it: stopped, with no offset or the seed.

    A connector that somebody stopped later has another offset, and stays stopped.
    """
    if actual.status is None or actual.status.connector != "STOPPED":
        return False
    return not actual.offsets or [entry["offset"] for entry in actual.offsets] == [seed]


def seed_offset(slot_lsn: str) -> dict[str, int]:
    """Debezium's offset that stands for a slot position, given as PostgreSQL writes it (`16/B374D848`)."""
    high, low = slot_lsn.split("/")
    lsn = (int(high, 16) << 32) + int(low, 16)
    return {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}


def different_keys(desired: dict[str, str], actual: dict[str, str]) -> list[str]:
    """Keys whose values differ; a masked or not yet known value is no difference."""
    keys = sorted((desired.keys() | actual.keys()) - SERVER_KEYS)
    return [key for key in keys if _differs(desired.get(key), actual.get(key))]


def _differs(desired: str | None, actual: str | None) -> bool:
    if actual is not None and MASK.match(actual):
        return desired is None
    return desired not in (actual, UNKNOWN)


def diff(name: str, desired: dict[str, str], actual: ActualConnector, *, seed: dict[str, int] | None) -> list[Change]:
    """Create the connector, bring its config up to date, or finish what an interrupted apply began."""
    if actual.config is None:
        return [Change("connect", f"connector {name}", "create", "reads the slot, writes the topics")]
    changes = []
    keys = different_keys(desired, actual.config)
    if keys:
        after = f"changed: {', '.join(keys)}"
        changes.append(Change("connect", f"connector {name}", "update", "restarts the task", "", after))
    if never_ran(actual, seed):
        changes.append(Change("connect", f"start {name}", "create", "an apply was interrupted before its first start"))
    return changes
