"""The lock file: what `apply` found out and what later runs hold the world against.

`connectors/<pipeline>.<environment>.lock.json`: schema ids as registered, the identity of the database and of the slot,
and the source epoch. Commit it; the embedded stack keeps its own under build/stack/.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outbox_kit.errors import ConfigurationError

MEND = "take it from version control; `outbox apply` writes it, nobody else"
KEPT_VERSIONS = 3
"""How many versions of a schema the connector config carries: a backlog written under an old one survives."""


class LockedSchema(BaseModel):
    """One registered version of a schema."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    subject: str
    version: int
    id: int = Field(description="The registry's id, which stands in every record.")
    fingerprint: str = Field(description="SHA-256 of the parsing canonical form.")
    text: str = Field(description="The schema as it was registered.")


class LockedSource(BaseModel):
    """The database that the slot was made in, so that another one is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    system_identifier: str
    timeline: int = Field(description="Raised by the server at every promotion and point-in-time recovery.")
    slot: str
    slot_lsn: str = Field(description="confirmed_flush_lsn when the slot was made.")
    publication_oid: int


class Lock(BaseModel):
    """The whole lock file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    pipeline: str
    environment: str
    source_epoch: int = 1
    unfinished: Literal["update", "recover"] | None = Field(
        default=None, description="What an apply has stopped the connector for; it is gone once that has ended."
    )
    source: LockedSource | None = None
    cluster_id: str | None = Field(default=None, description="Kafka cluster that was deployed to.")
    config: dict[str, str] | None = Field(
        default=None,
        description="Last connector config that ran through its stability window; placeholders as written.",
    )
    schemas: dict[str, list[LockedSchema]] = Field(default={}, description="By aggregate type, newest first.")


def read_lock(path: Path) -> Lock | None:
    """The lock in `path`, None where there is no such file yet. Raises ConfigurationError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"lock file {path}: {error.strerror}", MEND) from None
    try:
        return Lock.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"lock file {path}: {where}: {first['msg']}", MEND) from None


def write_lock(path: Path, lock: Lock) -> None:
    """Write the lock so that a crash leaves the old or the new file, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(json.dumps(lock.model_dump(), indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)  # noqa: PTH105 - the atomic one, by name
