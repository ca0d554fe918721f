"""Types of fields that cannot be columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_common.column_problems import column_problems
from outbox_events.schemas.avro_schema import load


def record(name: str, **types: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro types
    return {"type": "record", "name": name, "fields": [{"name": key, "type": value} for key, value in types.items()]}


def problems(**types: Any) -> list[str]:  # noqa: ANN401 - Avro types
    return [problem.message for problem in column_problems(load(json.dumps(record("Root", **types))))]


def decimal(kind: str = "bytes", **attributes: object) -> dict[str, Any]:
    fixed = {"name": "F", "size": 2} if kind == "fixed" else {}
    return {"type": kind, "logicalType": "decimal", **fixed, **attributes}


@pytest.mark.parametrize("precision", [0, -1, 39, "4", 4.0, True, None])
def test_rejects_an_invalid_precision(precision: object) -> None:
    (problem,) = problems(price=decimal(precision=precision))
    assert "precision" in problem


@pytest.mark.parametrize("scale", [-1, 5, "1", 1.0])
def test_rejects_an_invalid_scale(scale: object) -> None:
    (problem,) = problems(price=decimal(precision=4, scale=scale))
    assert "scale" in problem


def test_rejects_decimals_without_a_precision_inside_other_types() -> None:
    inner = record("Inner", price=decimal())
    types: list[Any] = [decimal(), {"type": "array", "items": decimal()}, {"type": "map", "values": inner}]
    assert [len(problems(field=avro_type)) for avro_type in types] == [1, 1, 1]


def test_limits_the_precision_to_the_size_of_a_fixed_type() -> None:
    assert problems(price=decimal("fixed", precision=4)) == []
    assert len(problems(price=decimal("fixed", precision=5))) == 1


def test_accepts_valid_decimals() -> None:
    types = {"a": decimal(precision=38, scale=38), "b": decimal(precision=1), "c": decimal("string", precision=0)}
    assert problems(**types) == []


@pytest.mark.parametrize(
    "avro_type",
    [
        ["null", "Root"],
        {"type": "array", "items": "Root"},
        {"type": "map", "values": "Root"},
        record("Inner", back={"type": "array", "items": ["null", {"type": "map", "values": "Inner"}]}),
        record("First", second=["null", record("Second", first=["null", "First"])]),
        record("First", second=["null", record("Second", root={"type": "map", "values": "Root"})]),
    ],
)
def test_rejects_recursive_records(avro_type: object) -> None:
    (problem,) = problems(field=avro_type)
    assert "recursive" in problem


def test_reports_every_field_with_a_recursive_record() -> None:
    assert len(problems(a=record("Node", next=["null", "Node"]), b="Node", c="string")) == 2


def test_accepts_a_record_that_is_used_twice() -> None:
    assert problems(a=record("Inner", n="int"), b="Inner", c={"type": "array", "items": "Inner"}) == []


def test_checks_each_record_once() -> None:
    """If each use were checked, the last of the types would be checked 2 ** 40 times."""
    inner = record("R40", n="int")
    for level in reversed(range(40)):
        inner = record(f"R{level}", a=inner, b=f"R{level + 1}")
    assert problems(field=inner) == []
    inner["fields"].append({"name": "bad", "type": decimal()})
    assert len(problems(field=inner)) == 1
