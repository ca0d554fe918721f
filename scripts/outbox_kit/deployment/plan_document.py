"""JSON form of a plan, as `plan --output json` prints and `plan --save` writes it (docs/plan.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from outbox_kit.changes import Action, Change, System, parse_object
from outbox_kit.deployment.plan_model import Plan, RollOut
from outbox_kit.errors import ConfigurationError

SAVE = "run `outbox plan --save FILE`"


class ChangeDocument(BaseModel):
    """One change; the JSON keys of Change.to_dict()."""

    model_config = ConfigDict(frozen=True)
    system: System
    object: str
    action: Action
    why: str
    before: str = ""
    after: str = ""
    danger: str = ""

    @field_validator("object")
    @classmethod
    def _kind_is_known(cls, value: str) -> str:
        parse_object(value)
        return value

    def to_change(self) -> Change:
        kind, name = parse_object(self.object)
        return Change(self.system, kind, name, self.action, self.why, self.before, self.after, self.danger)


class PlanDocument(BaseModel):
    """A plan as JSON. While `format` stays the same, keys are added, but never renamed or removed."""

    model_config = ConfigDict(frozen=True, from_attributes=True)
    format: Literal[1] = Field(description="1. Another number: another form of this document.")
    pipeline: str = Field(description="Name of the pipeline.")
    environment: str = Field(description="Name of the environment.")
    recover: bool = Field(description="Made with --recover.")
    only: list[System] = Field(description="Systems named by --only; empty: all.")
    changes: list[ChangeDocument] = Field(description="Pending changes, in the order in which apply makes them.")
    rollout: list[RollOut] = Field(description="Safe order of steps for each schema change.")
    waits_for: list[str] = Field(description="Pending objects that the connector requires and --only excludes.")
    files: str = Field(description="Fingerprint (SHA-256) of the desired state.")
    cluster_id: str | None = Field(description="Id of the Kafka cluster; null: not read.")
    registry: str | None = Field(description="Address of the registry; null: not read.")
    database: str | None = Field(description="SYSTEM_IDENTIFIER/NAME of the database; null: not read.")


def to_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON values."""
    fields = {name: getattr(plan, name) for name in PlanDocument.model_fields if name not in ("format", "changes")}
    changes = [change.to_dict() for change in plan.changes]
    return PlanDocument.model_validate({"format": 1, **fields, "changes": changes}).model_dump(mode="json")


def read_plan(path: Path) -> Plan:
    """Read a plan written by `plan --save`. Raises ConfigurationError."""
    try:
        document = PlanDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read plan file {path}: {error.strerror}", SAVE) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        detail = f"{location}: {first['msg']}" if location else first["msg"]
        raise ConfigurationError(f"plan file {path}: {detail}", SAVE) from None
    fields = {name: getattr(document, name) for name in PlanDocument.model_fields if name != "format"}
    for name in ("only", "rollout", "waits_for"):
        fields[name] = tuple(fields[name])
    return Plan(**{**fields, "changes": tuple(change.to_change() for change in document.changes)})
