"""The JSON form of a plan: what `plan --output json` prints and `plan --save` keeps; docs/plan.md describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outbox_kit.changes import Change, System
from outbox_kit.deployment.plan_model import Plan, RollOut
from outbox_kit.errors import ConfigurationError


class PlanDocument(BaseModel):
    """A plan as JSON. Keys are added, never renamed or removed, while `format` stays the same."""

    model_config = ConfigDict(frozen=True)
    format: Literal[1] = Field(description="1. Another number: another form of this document.")
    pipeline: str = Field(description="Name of the pipeline.")
    environment: str = Field(description="Name of the environment.")
    recover: bool = Field(description="Made with --recover.")
    only: list[System] = Field(description="Systems that --only named; empty: all.")
    changes: list[Change] = Field(description="What apply would do, in its order.")
    rollout: list[RollOut] = Field(description="Safe order for each schema that changes.")
    waits_for: list[str] = Field(description="Objects that a connector asked for by --only still needs.")
    files: str = Field(description="Fingerprint (SHA-256) of what the files want.")
    cluster_id: str | None = Field(description="Kafka cluster that was looked at; null: none was asked.")
    registry: str | None = Field(description="Address of the registry that was looked at.")
    database: str | None = Field(description="Database that was looked at: SYSTEM_IDENTIFIER/NAME.")


def to_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values."""
    document = PlanDocument(
        format=1,
        pipeline=plan.pipeline,
        environment=plan.environment,
        recover=plan.recover,
        only=list(plan.only),
        changes=list(plan.changes),
        rollout=list(plan.rollout),
        waits_for=list(plan.waits_for),
        files=plan.files,
        cluster_id=plan.cluster_id,
        registry=plan.registry,
        database=plan.database,
    )
    return document.model_dump(mode="json")


def read_plan(path: Path) -> Plan:
    """A plan that `plan --save` wrote. Raises ConfigurationError."""
    try:
        document = PlanDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"plan file {path}: {error.strerror}", "`outbox plan --save FILE` makes one") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"plan file {path}: {where}: {first['msg']}" if where else f"plan file {path}: {first['msg']}"
        raise ConfigurationError(message, "make it again: `outbox plan --save FILE`") from None
    return Plan(
        pipeline=document.pipeline,
        environment=document.environment,
        changes=tuple(document.changes),
        rollout=tuple(document.rollout),
        recover=document.recover,
        only=tuple(document.only),
        files=document.files,
        waits_for=tuple(document.waits_for),
        cluster_id=document.cluster_id,
        registry=document.registry,
        database=document.database,
    )
