"""Define plans: the pending changes, what they were computed from, and their form as JSON (docs/plan.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.results.changes import Action, Change, System, parse_object

SYSTEMS: tuple[System, ...] = get_args(System)
"""Systems in the order of deployment. The connector is last, because it requires all other systems."""
EXCLUDED_OBJECTS_MESSAGE = "the connector requires changes that --only excludes"
SAVE_HINT = "write a plan file with `outbox plan --save FILE`"


@dataclass(frozen=True)
class RollOut:
    """Fields that a change to an aggregate type's schema adds and removes, and the `steps` that deploy it safely."""

    aggregate: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Pending changes to the requested systems, in the order in which apply makes them.

    `only` lists the requested systems; empty means all. `files` is a fingerprint of the desired state. `waits_for`
    lists pending objects that the connector requires and `only` excludes. `cluster_id`, `registry` (URL) and `database`
    (SYSTEM_IDENTIFIER/NAME) identify the systems; each is None if the system was not read. `schemas` maps each type to
    its registered versions, the latest first. `config` is the connector's config without schemas. `lock` is the lock
    file; in a recovery, it has the new source epoch.
    """

    pipeline: str
    environment: str
    changes: tuple[Change, ...]
    roll_outs: tuple[RollOut, ...] = ()
    recover: bool = False
    only: tuple[System, ...] = ()
    files: str = ""
    waits_for: tuple[str, ...] = ()
    cluster_id: str | None = None
    registry: str | None = None
    database: str | None = None
    schemas: dict[str, list[LockedSchema]] = field(default_factory=dict, compare=False, repr=False)
    config: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    lock: Lock | None = field(default=None, compare=False, repr=False)

    @property
    def systems(self) -> tuple[System, ...]:
        return self.only or SYSTEMS

    def changes_of(self, system: System) -> list[Change]:
        """Return the changes that apply makes to one system. Adopted objects are only recorded."""
        return [change for change in self.changes if change.system == system and change.action != "adopt"]

    @property
    def dangerous(self) -> list[Change]:
        """The changes that require --allow. `--recover` already allows a new slot, publication and offset."""
        return [
            change
            for change in self.changes
            if change.danger and not (self.recover and change.action != "adopt" and _is_implied(change))
        ]


class ChangeDocument(BaseModel):
    """One change as JSON, with the keys that Change.to_dict() returns."""

    model_config = ConfigDict(frozen=True)
    system: System
    object: str
    action: Action
    why: str
    before: str = ""
    after: str = ""
    danger: str = ""
    loss: str = ""

    @field_validator("object")
    @classmethod
    def _check_kind(cls, value: str) -> str:
        parse_object(value)
        return value

    def to_change(self) -> Change:
        kind, name = parse_object(self.object)
        texts = self.why, self.before, self.after, self.danger, self.loss
        return Change(self.system, kind, name, self.action, *texts)


class PlanDocument(BaseModel):
    """A plan as JSON. Within one `format`, keys can be added, but not renamed or removed."""

    model_config = ConfigDict(frozen=True, from_attributes=True)
    format: Literal[1] = Field(description="Version of this format: 1.")
    pipeline: str = Field(description="Name of the pipeline.")
    environment: str = Field(description="Name of the environment.")
    recover: bool = Field(description="Whether the plan was made with --recover.")
    only: list[System] = Field(description="Systems that --only selects; empty for all systems.")
    changes: list[ChangeDocument] = Field(description="Pending changes, in the order in which apply makes them.")
    rollout: list[RollOut] = Field(description="Safe order of steps for each schema change.")
    waits_for: list[str] = Field(description="Pending objects that the connector requires and --only excludes.")
    files: str = Field(description="Fingerprint (SHA-256) of the desired state.")
    cluster_id: str | None = Field(description="Id of the Kafka cluster; null if Kafka was not read.")
    registry: str | None = Field(description="Address of the registry; null if the registry was not read.")
    database: str | None = Field(description="SYSTEM_IDENTIFIER/NAME; null if the database was not read.")


def to_document(plan: Plan) -> dict[str, Any]:
    fields = {name: getattr(plan, name) for name in PlanDocument.model_fields if hasattr(plan, name)}
    fields |= {"format": 1, "changes": [change.to_dict() for change in plan.changes], "rollout": plan.roll_outs}
    return PlanDocument.model_validate(fields).model_dump(mode="json")


def read_plan(path: Path) -> Plan:
    """Read a plan file that `plan --save` has written. Raises ConfigurationError."""
    try:
        document = PlanDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read plan file {path}: {error.strerror}", SAVE_HINT) from None
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        detail = ": ".join(filter(None, (".".join(map(str, first_error["loc"])), first_error["msg"])))
        raise ConfigurationError(f"plan file {path}: {detail}", SAVE_HINT) from None
    fields = {name: getattr(document, name) for name in PlanDocument.model_fields if name != "format"}
    fields |= {"only": tuple(document.only), "waits_for": tuple(document.waits_for)}
    changes, roll_outs = tuple(change.to_change() for change in document.changes), tuple(fields.pop("rollout"))
    return Plan(**{**fields, "changes": changes, "roll_outs": roll_outs})


def _is_implied(change: Change) -> bool:
    """Return whether every recovery makes such a change."""
    return change.system == "postgres" or change.kind == "offsets"
