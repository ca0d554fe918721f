"""Pipelines and rows for the tests of the encoder."""

from __future__ import annotations

import json
from typing import Any

from outbox_events.contract.partitioner import partition_of
from outbox_kit.encoding import OutboxRow, RecordEncoder
from outbox_kit.pipeline import Lock, LockedSchema, Pipeline
from outbox_kit.pipeline.model import CANARY_AGGREGATE

TIME = "2026-11-20T18:31:38.123456Z"
SEQUENCE = "0001_0000000000000001-0000000000000000"


def record_schema(**fields: object) -> str:
    """Return a schema with fields that are null by default."""
    entries = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "State", "fields": entries})


def encoder(*schemas: str, source: dict[str, object] | None = None, **aggregate: object) -> RecordEncoder:
    """Return the encoder of aggregate type `state`. The schemas have versions 1, 2, ..., and the newest comes first."""
    data: dict[str, Any] = {
        "name": "p",
        "prefix": "p",
        "source": {"publication": "p", "slot": "p", **(source or {})},
        "aggregates": {"state": {**({"schema": "state.avsc"} if schemas else {}), **aggregate}},
        "connector": {"name": "p"},
    }
    pipeline = Pipeline.model_validate(data)
    locked = [
        LockedSchema(subject="p.state-value", version=number, id=100 + number, fingerprint="", text=text)
        for number, text in enumerate(schemas, start=1)
    ]
    canary = LockedSchema(subject="c", version=1, id=1, fingerprint="", text=record_schema(a="int"))
    lock = Lock(pipeline="p", environment="e", schemas={"state": locked[::-1], CANARY_AGGREGATE: [canary]})
    return RecordEncoder(pipeline, lock, partition_of)


def row(payload: str | bytes | None = "{}", **changes: Any) -> OutboxRow:  # noqa: ANN401 - any column
    values: dict[str, Any] = {
        "id": "e1",
        "aggregate_type": "state",
        "aggregate_id": "k1",
        "event_type": "Changed",
        "payload": payload,
        "event_time": TIME,
    }
    return OutboxRow(**(values | changes))
