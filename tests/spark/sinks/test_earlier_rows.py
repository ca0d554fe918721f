"""Fields whose values are missing in rows, because the table was written with a schema without the field."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.table_under_test import Target

from outbox_spark.errors import SchemaError


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}, *fields]}


NOTE = {"name": "note", "type": "string", "default": "none"}
FIRST, WITHOUT, LAST = record(NOTE), record(), record({"name": "remark", "type": "string", "default": "?"})
RENAMED = record({**NOTE, "name": "remark", "aliases": ["note"]})


def test_requires_a_rebuild_for_a_field_that_is_added_again(target: Target) -> None:
    log, again = Log("test.thing"), record(NOTE, {"name": "more", "type": "int", "default": 7})
    registry = Schemas({1: FIRST, 2: WITHOUT, 3: LAST, 4: again}, newest=1)
    log.append("first", framed(FIRST, 1, {"n": 1, "note": "x"}), sequence(1))
    target.run(log, registry)
    for newest in (2, 3):
        registry.newest = newest
        log.append(f"without_{newest}", framed(WITHOUT, 2, {"n": 2}), sequence(newest))
        log.append(f"ignored_{newest}", framed(FIRST, 1, {"n": 3, "note": "y"}), sequence(newest))
        target.run(log, registry)
    registry.newest = 4
    before = target.rows()
    with pytest.raises(SchemaError, match="lack the values of field note"):
        target.run(log, registry)
    assert target.rows() == before
    target.replace_by_shadow(log, registry)
    log.append("last", framed(again, 4, {"n": 5, "note": "z", "more": 8}), sequence(9))
    target.run(log, registry)
    notes = {key: row["note"] for key, row in target.state("note").items()}
    without = {"without_2": "none", "without_3": "none"}
    assert notes == {"first": "x", **without, "ignored_2": "y", "ignored_3": "y", "last": "z"}
    assert {row["more"] for row in target.state("more").values()} == {7, 8}


def test_requires_a_rebuild_for_a_renamed_field(target: Target) -> None:
    log, registry = Log("test.thing"), Schemas({1: FIRST, 2: RENAMED}, newest=1)
    log.append("old", framed(FIRST, 1, {"n": 1, "note": "x"}), sequence(1))
    target.run(log, registry)
    registry.newest = 2
    with pytest.raises(SchemaError, match="lack the values of field remark"):
        target.run(log, registry)
    target.replace_by_shadow(log, registry)
    log.append("new", framed(RENAMED, 2, {"n": 2, "remark": "y"}), sequence(2))
    target.run(log, registry)
    assert {key: row["remark"] for key, row in target.state("remark").items()} == {"old": "x", "new": "y"}
