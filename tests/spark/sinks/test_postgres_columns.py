"""PostgreSQL columns and comments follow the latest schema."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from tests.spark.kafka_log import POISON, Log, Schemas, framed, sequence
from tests.spark.table_under_test import Target

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import Mode, PostgresTarget


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Thing", "fields": list(fields)}


def decimal(precision: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


NARROW = record(
    {"name": "n", "type": "int", "doc": "How many"},
    {"name": "rate", "type": "float"},
    {"name": "price", "type": decimal(4)},
)
WIDE = record(
    {"name": "n", "type": "long", "doc": "How many, since '26"},
    {"name": "rate", "type": "double"},
    {"name": "price", "type": decimal(12)},
    {"name": "note", "type": ["null", "string"], "default": None, "doc": "New"},
)
SCHEMAS = Schemas({1: NARROW, 2: WIDE}, newest=1)


def execute(target: Target, statement: str) -> list[tuple[Any, ...]]:
    """Run SQL in which SCHEMA is replaced by the target's schema."""
    assert isinstance(target.job.target, PostgresTarget)
    assert target.dsn is not None
    with psycopg.connect(**target.dsn) as connection:
        cursor = connection.execute(statement.replace("SCHEMA", target.job.target.schema).encode())
        return cursor.fetchall() if cursor.description else []


def types(target: Target) -> dict[str, str]:
    rows = execute(
        target,
        "select attname, format_type(atttypid, atttypmod) from pg_attribute "
        "where attrelid = 'SCHEMA.thing'::regclass and attnum > 0",
    )
    return dict(rows)


def comments(target: Target) -> dict[str, str]:
    rows = execute(
        target,
        "select coalesce(attname, ''), description from pg_description d left join pg_attribute a "
        "on a.attrelid = d.objoid and a.attnum = d.objsubid and attnum > 0 where d.objoid = 'SCHEMA.thing'::regclass",
    )
    return dict(rows)


def test_columns_and_comments_follow_the_latest_schema(postgres_target: Target) -> None:
    log = Log("test.thing")
    log.append("old", framed(NARROW, 1, {"n": -1, "rate": 0.5, "price": Decimal("-10.01")}), sequence(1))
    postgres_target.run(log, SCHEMAS)
    described = comments(postgres_target)
    assert described[""] == "Newest state of each key of topic test.thing; deleted keys have no row (mode hard-delete)"
    assert described["n"] == "How many"
    assert set(types(postgres_target)) - set(described) == {"rate", "price"}

    execute(postgres_target, "comment on column SCHEMA.thing.rate is 'by hand'")
    new = {"n": 2**40, "rate": 0.1, "price": Decimal("1234567890.01"), "note": None}
    log.append("new", framed(WIDE, 2, new), sequence(2))
    postgres_target.run(log, Schemas(SCHEMAS.by_number, newest=2))
    actual = types(postgres_target)
    assert (actual["n"], actual["rate"], actual["price"]) == ("bigint", "double precision", "numeric(12,2)")
    old = {"n": -1, "rate": 0.5, "price": Decimal("-10.01"), "note": None}
    assert postgres_target.state("n", "rate", "price", "note") == {"old": old, "new": new}
    described = comments(postgres_target)
    assert (described["n"], described["note"], described["rate"]) == ("How many, since '26", "New", "by hand")

    with pytest.raises(SchemaError, match=r"column .*\.thing\.n .*bigint; .*integer"):
        postgres_target.run(log, SCHEMAS)


def test_reports_a_view_that_prevents_widening(postgres_target: Target) -> None:
    log = Log("test.thing")
    log.append("old", framed(NARROW, 1, {"n": 1, "rate": 0.5, "price": Decimal("0.01")}), sequence(1))
    postgres_target.run(log, SCHEMAS)
    execute(postgres_target, "create view SCHEMA.seen as select n from SCHEMA.thing")
    before = (postgres_target.rows(), postgres_target.committed())
    with pytest.raises(OutboxError, match=r"column used by a view"):
        postgres_target.run(log, Schemas(SCHEMAS.by_number, newest=2))
    assert (postgres_target.rows(), postgres_target.committed()) == before


def test_keeps_columns_that_were_added_by_hand(postgres_target: Target) -> None:
    log, schema = Log("test.thing"), record({"name": "n", "type": "int"}, {"name": "m", "type": "int", "default": 0})
    schemas = Schemas({1: schema, 2: record({"name": "n", "type": "int"})}, newest=1)
    log.append("a", framed(schema, 1, {"n": 1, "m": 1}), sequence(1))
    postgres_target.run(log, schemas)
    execute(postgres_target, "alter table SCHEMA.thing add note text, add rank int not null default 7")
    execute(postgres_target, "update SCHEMA.thing set note = 'mine', rank = 8")
    log.append("a", framed(schema, 1, {"n": 2, "m": 2}), sequence(2))
    log.append("b", framed(schema, 1, {"n": 3, "m": 3}), sequence(3))
    postgres_target.run(log, Schemas(schemas.by_number, newest=2))
    expected = {"a": {"n": 2, "note": "mine", "rank": 8}, "b": {"n": 3, "note": None, "rank": 7}}
    assert postgres_target.state("n", "note", "rank") == expected
    assert postgres_target.state("m")["a"] == {"m": None}  # a column that was removed from the schema
    postgres_target.replace_by_shadow(log, Schemas(schemas.by_number, newest=2))
    assert postgres_target.state("n", "note", "rank") == expected
    assert "m" not in types(postgres_target)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("add by_hand int not null", r"column .*\.thing\.by_hand, which .* did not create, is NOT NULL"),
        ("add m int", r"did not create column .*\.thing\.m, but the schema has this field"),
        ("add m int generated always as (1) stored", r"did not create column .*\.thing\.m, but the schema"),
    ],
)
def test_rejects_columns_with_which_no_row_can_be_written(
    postgres_target: Target, definition: str, message: str
) -> None:
    schema = record({"name": "n", "type": "int"})
    wide = record({"name": "n", "type": "int"}, {"name": "m", "type": ["null", "int"], "default": None})
    log = Log("test.thing")
    postgres_target.run(log, Schemas({1: schema}, newest=1))
    execute(postgres_target, f"alter table SCHEMA.thing {definition}")
    log.append("a", framed(wide, 1, {"n": 1, "m": 1}), sequence(1))
    with pytest.raises(SchemaError, match=message):
        postgres_target.run(log, Schemas({1: wide}, newest=1))
    assert postgres_target.rows() == []


def test_rejection_by_a_trigger_is_not_retryable_and_has_no_value(postgres_target: Target) -> None:
    schema = record({"name": "n", "type": "int"})
    log = Log("test.thing")
    postgres_target.run(log, Schemas({1: schema}, newest=1))
    execute(
        postgres_target,
        "create function SCHEMA.reject() returns trigger language plpgsql as "
        "$$begin raise exception 'value %', new.n; end$$",
    )
    execute(
        postgres_target,
        "create trigger reject before insert on SCHEMA.thing for each row execute function SCHEMA.reject()",
    )
    log.append("a", framed(schema, 1, {"n": 4711}), sequence(1))
    with pytest.raises(RefusedError, match=r"trigger rejects .*\.thing") as refused:
        postgres_target.run(log, Schemas({1: schema}, newest=1))
    assert "4711" not in str(refused.value)


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_rejects_a_mode_change(postgres_target: Target, mode: Mode) -> None:
    schemas = Schemas({1: record({"name": "n", "type": "int"})}, newest=1)
    postgres_target.run(Log("test.thing"), schemas)
    with pytest.raises(ConfigurationError, match=f"mode hard-delete, .* mode {mode}"):
        postgres_target.in_mode(mode).run(Log("test.thing"), schemas)


def test_materializes_each_mode(postgres_target: Target) -> None:
    """This tests each mode of test_postgres_modes with all steps of the job."""
    schema = record({"name": "n", "type": "int"})
    schemas = Schemas({1: schema}, newest=1)
    log = Log("test.thing")
    for commit in (1, 2):
        log.append("k", framed(schema, 1, {"n": commit}), sequence(commit))
    log.append("k", None, sequence(3))
    log.append("other", framed(schema, 1, {"n": 4}), sequence(4))
    log.append("other", b"bad", sequence(5), POISON)
    history = postgres_target.in_mode(Mode.HISTORY)
    outcome = history.run(log, schemas)
    assert (outcome.upserts, outcome.tombstones, outcome.quarantined) == (3, 1, 1)
    rows = sorted(history.rows(), key=lambda row: row["_sequence"])
    assert [(row["n"], row["_stale"]) for row in rows] == [(1, False), (2, False), (4, True)]
    assert [row["_valid_to"] for row in rows] == [
        rows[1]["_valid_from"],
        history.rows("__tombstones")[0]["_timestamp"],
        None,
    ]
    with history.open() as table:  # deletions end intervals, so a history retains them
        assert table.expire_ledger(datetime.now(UTC)) == 0
    assert len(history.rows("__tombstones")) == 1
    execute(postgres_target, "drop table SCHEMA.thing")

    soft = postgres_target.in_mode(Mode.SOFT_DELETE)
    soft.run(log, schemas, {0: 1, 1: 1})
    soft.run(log, schemas)
    state = soft.state("n", "_stale", "_deleted_at")
    (deleted_at,) = (row["_deleted_at"] for row in soft.rows() if row["aggregate_id"] == "k")
    assert state == {
        "k": {"n": state["k"]["n"], "_stale": False, "_deleted_at": deleted_at},
        "other": {"n": 4, "_stale": True, "_deleted_at": None},
    }
    assert deleted_at is not None
