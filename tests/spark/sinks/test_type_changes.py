"""After every change of a field's type, the table follows, or the printed way leads to a table that follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target
from tests.variations import variations

from outbox_spark.commands.rebuild import rebuild
from outbox_spark.errors import SchemaError
from outbox_spark.runs.materialize_table import materialize

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
Change = tuple[Any, Any, Any, Any, Any]
"""Previous and new type, values written with them, and the first value as the new type stores it."""
CHANGES: dict[str, Change] = {
    "int to long": ("int", "long", 1, 2**40, 1),
    "int to double": ("int", "double", 1, 0.5, 1.0),
    "float to double": ("float", "double", 0.5, 0.25, 0.5),
    "decimal precision": (DECIMAL, {**DECIMAL, "precision": 8}, Decimal("1.50"), Decimal("1234.50"), Decimal("1.50")),
    "bytes to string": ("bytes", "string", b"a", "b", "a"),
    "long to string": ("long", "string", 1, "b", None),
    "int to date": ("int", DATE, 1, date(2026, 1, 2), None),
}
FOLLOWS = {
    "postgres": {"int to long", "int to double", "float to double", "decimal precision"},
    "iceberg": {"int to long", "float to double", "decimal precision"},
    "delta": set[str](),
}
CASES = [(kind, change) for kind in FOLLOWS for change in CHANGES]


def schema(**types: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro types
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    for field in fields:
        if isinstance(field["type"], list) and field["type"][0] == "null":
            field["default"] = None
    return {"type": "record", "name": "Thing", "fields": fields}


@pytest.mark.parametrize(
    ("kind", "change"),
    variations(CASES, key=lambda case: case if case[0] == "postgres" else case[0], name=" ".join),
)
def test_every_change_of_a_type_has_a_way_out(request: pytest.FixtureRequest, kind: str, change: str) -> None:
    target: Target = request.getfixturevalue(f"{kind}_target")
    previous, new, old_value, new_value, converted = CHANGES[change]
    schemas = Schemas({1: schema(n=previous), 2: schema(n=new)}, newest=1)
    log = Log("test.thing", partitions=1)
    live = LiveTopic(target.spark, log, schemas)

    def run() -> None:
        materialize(target.spark, target.job, lambda _: None, topic=live.topic())

    log.append("a", framed(schema(n=previous), 1, {"n": old_value}), sequence(1))
    run()
    schemas.newest = 2
    log.append("b", framed(schema(n=new), 2, {"n": new_value}), sequence(2))
    if change in FOLLOWS[kind]:
        run()
        assert target.state("n") == {"a": {"n": converted}, "b": {"n": new_value}}
        return
    follow_hints(target, live, schemas, CHANGES[change], run)
    column = "m" if "m" in target.rows()[0] else "n"
    assert set(target.state()) == {"a", "b"}
    if converted is not None:
        assert target.state("n") == {"a": {"n": converted}, "b": {"n": new_value}}
    newest = schemas.by_number[schemas.newest]
    value = {"n": None, "m": new_value} if column == "m" else {"n": new_value}
    log.append("c", framed(newest, schemas.newest, value), sequence(4))
    run()
    assert len(target.rows()) == 3


def follow_hints(target: Target, live: LiveTopic, schemas: Schemas, change: Change, run: Callable[[], None]) -> None:
    """Run until there is no error, and do after each error what its hint says."""
    previous, new, _, new_value, _ = change

    def rebuild_and_run() -> None:
        options = structs.replace(target.job.options, tombstone_ttl=3650 * 86400)
        job = structs.replace(target.job, options=options)
        rebuild(target.spark, job, lambda _: None, restart=True, topic=live.topic())
        run()

    step = run
    for _attempt in range(5):
        hint = hint_of(step)
        if not hint:
            return
        if "another field" in hint:
            schemas.by_number[3] = schema(n=["null", previous], m=["null", new])
            value = {"n": None, "m": new_value}
        elif "union" in hint:
            schemas.by_number[3] = schema(n=[previous, new])
            value = {"n": new_value}
        else:
            assert "`outbox-rebuild`" in hint
            step = rebuild_and_run
            continue
        schemas.newest = 3
        # As `outbox backfill --restart` does, the state is sent again.
        live.log.append("b", framed(schemas.by_number[3], 3, value), sequence(3))
    pytest.fail("the hints lead to no working table")


def hint_of(run: Callable[[], None]) -> str:
    try:
        run()
    except SchemaError as error:
        return error.hint
    return ""
