"""Read and write the lock file. `apply` records the deployed state in it, and later runs compare the actual state.

`connectors/<pipeline>.<environment>.lock.json` contains the ids of registered schemas, the identities of the database,
slot and topics, and the source epoch. Keep the file in version control. The lock file of the embedded stack is in
build/stack/.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline.avro import parse_bounded
from outbox_kit.pipeline.names import Model

FORMAT = 1
RESTORE_HINT = "restore the version of the last `outbox apply` from version control; only outbox-kit writes the file"
MAX_BYTES = 20_000_000
RETAINED_VERSIONS = 3
"""Number of schema versions per aggregate type in the connector config. Rows in the WAL can need old versions."""


class LockedSchema(Model):
    """One registered version of a schema."""

    subject: str
    version: int
    id: int = Field(description="Id of the schema in the registry, which every record contains.")
    fingerprint: str = Field(description="SHA-256 of the parsing canonical form.")
    text: str = Field(description="The registered schema.")


class LockedSource(Model):
    """Identity of the database, the slot and the publication."""

    system_identifier: str
    timeline: int = Field(description="Timeline, which every promotion and point-in-time recovery increments.")
    slot: str
    slot_lsn: str = Field(description="The slot's confirmed_flush_lsn at the time of its creation.")
    publication_oid: int
    table_oid: int | None = Field(default=None, description="Null if events are logical decoding messages.")


class LockedDatabase(Model):
    """Identity of the database and its outbox table. Every apply records it, also without a slot (relay only)."""

    system_identifier: str
    name: str = Field(description="Result of current_database().")
    table: str | None = Field(description="Outbox table; null if events are logical decoding messages.")


class LockedTopic(Model):
    """Identity of a topic, and whether it needs a backfill."""

    id: str = Field(description="Id that the cluster assigned to the topic; empty if the cluster does not assign ids.")
    partitions: int
    aggregate_type: str | None = Field(
        default=None, description="Aggregate type whose states are on the topic; null for all other topics."
    )
    pending_backfill: Literal["required", "started"] | None = Field(
        default=None,
        description="Status of the backfill that a topic with missing or old states needs; null if none is needed.",
    )


class Lock(Model):
    """Content of the lock file."""

    format: int = Field(default=1, description="Version of the format of this file.")
    pipeline: str
    environment: str
    source_epoch: int = 1
    unfinished: Literal["update", "recover"] | None = Field(
        default=None,
        description="Operation that apply did not complete. The connector remains stopped. Null if there is none.",
    )
    source: LockedSource | None = None
    database: LockedDatabase | None = None
    prefix: str | None = Field(default=None, description="Prefix of the topics.")
    cluster_id: str | None = Field(default=None, description="Id of the Kafka cluster.")
    registry_url: str | None = Field(default=None, description="Address of the schema registry.")
    topics: dict[str, LockedTopic] = Field(default={}, description="Topics of the pipeline by name.")
    created_topics: list[str] = Field(default=[], description="Topics that an interrupted apply may have created.")
    created_subjects: list[str] = Field(default=[], description="Subjects that an interrupted apply may have created.")
    config: dict[str, str] | None = Field(
        default=None,
        description="Last connector config that passed its stability window; placeholders are not resolved.",
    )
    names: dict[str, str] = Field(
        default={}, description="Names and addresses in the connector config of the last apply, by key of the config."
    )
    schemas: dict[str, list[LockedSchema]] = Field(
        default={}, description="Registered schema versions of each aggregate type, latest first."
    )

    @property
    def has_connector(self) -> bool:
        """Whether an apply has created slot or connector, and no destroy has deleted them. Otherwise, a relay sends."""
        return self.source is not None or self.config is not None

    @property
    def has_only_relay(self) -> bool:
        """Whether `apply` has created topics only for a relay: no apply or destroy of a connector is recorded."""
        return bool(self.topics) and not (self.has_connector or self.names)

    @property
    def system_identifier(self) -> str | None:
        """System identifier of the database, also after destroy. None before the first apply."""
        recorded = self.source or self.database
        return recorded.system_identifier if recorded else None


def read_lock(path: Path) -> Lock | None:
    """Return the content of the lock file, or None if it does not exist. Raises ConfigurationError."""
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"lock file {path}: {error.strerror}", RESTORE_HINT) from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"lock file {path}: larger than {MAX_BYTES} bytes", RESTORE_HINT)
    try:
        document = from_json(content)
    except ValueError as error:
        raise ConfigurationError(f"lock file {path}: invalid JSON: {error}", RESTORE_HINT) from None
    digest = document.pop("sha256", None) if isinstance(document, dict) else None
    _refuse_other_format(path, document)
    try:
        lock = Lock.model_validate(document)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        place = [f"lock file {path}", ".".join(map(str, first_error["loc"])), first_error["msg"]]
        raise ConfigurationError(": ".join(filter(None, place)), RESTORE_HINT) from None
    if digest != _digest(document):
        raise ConfigurationError(f"lock file {path}: changed by hand, or by a merge of two versions", RESTORE_HINT)
    _refuse_invalid_schemas(path, lock)
    return lock


def _refuse_other_format(path: Path, document: object) -> None:
    found = document.get("format", 1) if isinstance(document, dict) else FORMAT
    if found != FORMAT:
        message = f"lock file {path}: format {found}; this version of outbox-kit reads format {FORMAT}"
        raise ConfigurationError(message, "use the version of outbox-kit that wrote the file, or a later one")


def _refuse_invalid_schemas(path: Path, lock: Lock) -> None:
    """Raise ConfigurationError for a schema that is not JSON, or that is nested too deeply to be processed."""
    for name, versions in lock.schemas.items():
        subject = f"lock file {path}: schemas.{name}"
        for version in versions:
            try:
                parse_bounded(subject, version.text)
            except ValueError:
                raise ConfigurationError(f"{subject}: not valid JSON", RESTORE_HINT) from None


def _digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of the values in the file, which detects changes by hand."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the lock file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = lock.model_copy(update={"format": FORMAT}).model_dump()
    temporary_file = path.with_suffix(path.suffix + ".partial")
    temporary_file.write_text(json.dumps({**document, "sha256": _digest(document)}, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary_file, path)  # noqa: PTH105 - atomic
