"""Back up a connector's offsets. `offsets export` and `offsets reset` write backup files, `reset --from` reads them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_kit.connect.config_diff import short_fingerprint
from outbox_kit.connect.offset_seeding import offset_of_prefix
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.lag import Positions
from outbox_kit.pipeline import Lock

OWNER_ONLY_MODE = 0o600
BACKUP_HINT = "choose a backup file that `outbox offsets export` or `outbox offsets reset` has written"


class SlotPosition(BaseModel):
    """Name and LSNs of the slot. LSNs are numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    confirmed_flush: int | None
    restart: int | None


class Backup(BaseModel):
    """Offsets of a connector, with the identity of the source for which they are valid."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["outbox-kit offsets"] = "outbox-kit offsets"
    taken_at: str
    pipeline: str
    environment: str
    connector: str
    prefix: str
    offsets: list[dict[str, Any]] = Field(description="[{partition, offset}] as Connect stores them.")
    slot: SlotPosition
    server: int = Field(description="WAL position of the server, in bytes.")
    system_identifier: str | None
    timeline: int | None
    source_epoch: int
    config_fingerprint: str


def create(deployment: Deployment, actual: ActualConnector, positions: Positions, lock: Lock | None) -> Backup:
    source = lock.source if lock else None
    slot = SlotPosition(
        name=deployment.pipeline.source.slot, confirmed_flush=positions.confirmed, restart=positions.restart
    )
    return Backup(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        pipeline=deployment.pipeline.name,
        environment=deployment.environment.name,
        connector=deployment.pipeline.connector.name,
        prefix=deployment.pipeline.prefix,
        offsets=actual.offsets,
        slot=slot,
        server=positions.server,
        system_identifier=source.system_identifier if source else None,
        timeline=source.timeline if source else None,
        source_epoch=lock.source_epoch if lock else 1,
        config_fingerprint=short_fingerprint(actual.config or {}),
    )


def default_path(deployment: Deployment) -> Path:
    """Return the path of a new backup next to the lock file, with the current time in the file name."""
    timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    return deployment.lock_file.with_name(deployment.lock_file.name.replace(".lock.json", f".offsets.{timestamp}.json"))


def write(path: Path, backup: Backup) -> None:
    """Write a new file that only its owner can read. Raises ConfigurationError, or RefusedError if the file exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(backup.model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if path.is_file():
            raise RefusedError(f"{path} already exists", "choose the path of a new file") from None
        raise ConfigurationError(f"cannot write {path}: {error.strerror}", "choose a path that is writable") from None


def read(path: Path, deployment: Deployment, lock: Lock) -> dict[str, Any]:
    """Return the offset in a file. Raises ConfigurationError if the file is invalid, RefusedError if it is foreign."""
    try:
        backup = Backup.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", BACKUP_HINT) from None
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first_error["loc"])) or "the file"
        raise ConfigurationError(f"{path}: {location}: {first_error['msg']}", BACKUP_HINT) from None
    _refuse_other_source(path, backup, deployment, lock)
    offset = offset_of_prefix(backup.offsets, deployment.pipeline.prefix)
    if offset is None or not isinstance(offset.get("lsn"), int):
        raise RefusedError(f"{path} has no offset with an LSN for prefix {deployment.pipeline.prefix!r}", BACKUP_HINT)
    return offset


def _refuse_other_source(path: Path, backup: Backup, deployment: Deployment, lock: Lock) -> None:
    """Raise RefusedError unless the backup was made with this slot and database. Offsets are not valid for others."""
    source = lock.source
    expected = {
        "pipeline": deployment.pipeline.name,
        "environment": deployment.environment.name,
        "connector": deployment.pipeline.connector.name,
        "slot": deployment.pipeline.source.slot,
        "system_identifier": source.system_identifier if source else None,
        "timeline": source.timeline if source else None,
        "source_epoch": lock.source_epoch,
    }
    actual = {**backup.model_dump(), "slot": backup.slot.name}
    differences = [f"{key} {actual[key]}, not {value}" for key, value in expected.items() if actual[key] != value]
    if differences:
        raise RefusedError(
            f"{path} is a backup of {'; '.join(differences)}: its offset is not valid for this connector",
            "omit --from to start at the slot's LSN",
        )
