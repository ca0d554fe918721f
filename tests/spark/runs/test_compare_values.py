"""Comparison of rows with the records of their versions: values of every type, the state of rows, and the repair."""

from __future__ import annotations

import math
from contextlib import ExitStack
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from msgspec import structs
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.damaged_rows import damage, sql_name
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, delete, poison, put

from outbox_spark.commands.reconcile import reconcile
from outbox_spark.commands.reconcile_report import ComparisonResult
from outbox_spark.jobs.model import Mode, PostgresTarget, RecordFormat
from outbox_spark.runs.compare_topic import Comparison, compare_with_topic
from outbox_spark.runs.repair import count_unrepaired, repair_table

NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "numbers", "type": {"type": "map", "values": "double"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3}},
    ],
}
# Name, Avro type, value, another value.
FIELDS: list[tuple[str, Any, Any, Any]] = [
    ("plain", "string", "tab\t newline\n quote' backslash\\ \U0001f4da", "tab\t newline\n quote' backslash\\ "),
    ("empty", "string", "", " "),
    ("small", "int", -(2**31), 0),
    ("large", "long", 2**63 - 1, 2**63 - 2),
    ("single", "float", 0.1, 0.5),
    ("double", "double", 0.1, math.nextafter(0.1, 1)),
    ("nan", "double", math.nan, 1.0),
    ("infinite", "double", math.inf, -math.inf),
    ("flag", "boolean", False, True),
    ("raw", "bytes", b"\x00\xff\\", b""),
    ("fixed", {"type": "fixed", "name": "Three", "size": 3}, b"\x00ab", b"\x00ac"),
    ("id", {"type": "string", "logicalType": "uuid"}, "6A6B0E1C-0a0b-4c0d-8e0f-0123456789ab",
     "6a6b0e1c-0a0b-4c0d-8e0f-0123456789ac"),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
     Decimal("-1234567890.10"), Decimal("-1234567890.11")),
    ("big", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
     Decimal("9" * 38), Decimal("9" * 37 + "8")),
    ("day", {"type": "int", "logicalType": "date"}, date(1492, 10, 12), date(1492, 10, 13)),
    ("clock", {"type": "long", "logicalType": "time-micros"}, time(23, 59, 59, 999999), time(23, 59, 59)),
    ("at", {"type": "long", "logicalType": "timestamp-micros"},
     datetime(1899, 12, 31, 23, 0, 0, 1, UTC), datetime(1899, 12, 31, 23, 0, 0, 2, UTC)),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"},
     datetime(2026, 3, 29, 2, 30, 0, 1), datetime(2026, 3, 29, 2, 30)),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}, "OLD", "NEW"),
    ("tags", {"type": "array", "items": "string"}, ["a", "", 'q"\\'], ["", "a", 'q"\\']),
    ("counts", {"type": "map", "values": "long"}, {"x": 2**53 + 1, "y": 0}, {"x": 2**53 + 2, "y": 0}),
    ("nested", NESTED, {"text": None, "numbers": {"b": math.nan, "a": -0.0}, "price": Decimal("1.500")},
     {"text": "", "numbers": {"b": math.nan, "a": -0.0}, "price": Decimal("1.500")}),
    ("nested_list", {"type": "array", "items": "Nested"},
     [{"text": "x", "numbers": {"i": math.inf}, "price": Decimal("0.001")}], []),
    ("union", ["string", "long"], "7", 7),
    ("maybe", ["null", "string"], None, ""),
]  # fmt: skip
# The two values are equal, so this column does not differ.
ZERO = ("zero", "double", -0.0, 0.0)
SCHEMA = {"type": "record", "name": "Thing", "fields": [{"name": f[0], "type": f[1]} for f in [*FIELDS, ZERO]]}


def compared(target: Target, live: LiveTopic, *, repair: bool = False, compare_fields: bool = True) -> Comparison:
    """Compare the table with its topic. With `repair`, also repair it, and check that no differences are left."""
    schemas: Any = live.schemas
    with target.open() as table, ExitStack() as stack:
        arguments = (target.job, table, live.topic(), schemas, stack, 99)
        actual = compare_with_topic(*arguments, compare_fields=compare_fields)
        if repair:
            repair_table(table, actual)
            assert set(count_unrepaired(table, actual, stack).values()) == {0}
        return actual


def keys(actual: Comparison) -> dict[str, list[str]]:
    return {kind.value: sorted(names) for kind, names in actual.examples.items() if actual.counts[kind]}


def rows_as_text(target: Target, *, without: str | None = None) -> list[str]:
    """Return the rows, except those of one key, as text, in which NaN equals NaN and -0.0 differs from 0.0."""
    return sorted(str(row) for row in target.rows() if row["aggregate_id"] != without)


def restore(target: Target, rows: list[dict[str, Any]]) -> None:
    """Insert rows into a PostgreSQL table."""
    assert isinstance(target.job.target, PostgresTarget)
    assert target.dsn is not None
    names = SQL(", ").join(map(Identifier, rows[0]))
    values = SQL(", ").join(SQL("%s") * len(rows[0]))
    insert = SQL("insert into {} ({}) values ({})").format(Identifier(target.job.target.schema, "thing"), names, values)
    with psycopg.connect(**target.dsn) as connection:
        connection.cursor().executemany(insert, [list(row.values()) for row in rows])


def swap_values(target: Target) -> None:
    """Set the column C of the row `k_C` to its value in the row `other`, for every C."""
    names = [name for name, *_ in [*FIELDS, ZERO]]
    if isinstance(target.job.target, PostgresTarget):
        assert target.dsn is not None
        table = Identifier(target.job.target.schema, "thing")
        changes = SQL(", ").join(
            SQL("{0} = case t.aggregate_id when {1} then o.{0} else t.{0} end").format(Identifier(name), f"k_{name}")
            for name in names
        )
        update = SQL("update {} t set {} from (select * from {} where aggregate_id = 'other') o")
        with psycopg.connect(**target.dsn) as connection:
            connection.execute(update.format(table, changes, table))
        return
    rows = target.spark.table(sql_name(target))
    other = rows.where("aggregate_id = 'other'").select(F.struct(*names).alias("other"))
    changed = {name: F.when(F.col("aggregate_id") == f"k_{name}", F.col(f"other.{name}")).otherwise(F.col(name))
               for name in names}  # fmt: skip
    rows.crossJoin(other).withColumns(changed).drop("other").createOrReplaceTempView("changed_things")
    update = "t USING changed_things s ON t.aggregate_id = s.aggregate_id WHEN MATCHED THEN UPDATE SET *"
    target.spark.sql(f"MERGE INTO {sql_name(target)} {update}").collect()


def test_finds_and_repairs_a_change_of_every_type(spark: SparkSession, target: Target) -> None:
    log = Log("test.thing")
    names = [name for name, *_ in [*FIELDS, ZERO]]
    values = {name: value for name, _, value, _ in [*FIELDS, ZERO]}
    others = {name: other for name, _, _, other in [*FIELDS, ZERO]}
    for commit, key in enumerate(["other", *(f"k_{name}" for name in names)]):
        log.append(key, framed(SCHEMA, 1, others if key == "other" else values), sequence(commit))
    live = LiveTopic(spark, log, Schemas({1: SCHEMA}, newest=1))
    target.run(log, live.schemas)
    before, progress = rows_as_text(target, without="k_zero"), target.committed()
    swap_values(target)
    actual = compared(target, live, repair=True)
    different = [name for name, *_ in FIELDS]
    assert keys(actual) == {"different": sorted(f"k_{name}" for name in different)}
    assert actual.column_counts == dict.fromkeys(sorted(different), 1)
    assert rows_as_text(target, without="k_zero") == before
    committed = target.committed()
    assert progress is not None
    assert committed is not None
    assert committed.offsets == progress.offsets


@pytest.fixture(params=["postgres", pytest.param("delta", marks=pytest.mark.long)])
def table(request: pytest.FixtureRequest) -> Target:
    """Return a table of a database and of a lake."""
    fixture: Target = request.getfixturevalue(f"{request.param}_target")
    return fixture


@pytest.mark.long
def test_compares_the_state_of_soft_deleted_rows(spark: SparkSession, table: Target) -> None:
    target, log = table.in_mode(Mode.SOFT_DELETE), Log("test.thing", partitions=1)
    for commit, key in enumerate(("ok", "value", "undeleted", "deleted", "time", "flag", "stale", "bad", "gone")):
        put(log, key, commit)
    target.run(log, SCHEMAS)
    for commit, key in enumerate(("undeleted", "gone"), start=10):
        delete(log, key, commit)
    poison(log, "stale", 12)
    poison(log, "bad", 13)
    put(log, "ok", 14)
    target.run(log, SCHEMAS)
    live = LiveTopic(spark, log, SCHEMAS)
    before = rows_as_text(target)
    damage(target, "value", n=99)
    damage(target, "undeleted", _deleted_at=None)
    damage(target, "deleted", _deleted_at="2026-01-02 00:00:00+00")
    damage(target, "time", _timestamp="2026-01-02 00:00:00+00")
    damage(target, "flag", _stale=True)
    damage(target, "stale", _stale=False)
    states = ["deleted", "flag", "stale", "time", "undeleted"]
    assert keys(compared(target, live, compare_fields=False)) == {"different": states, "unreadable": ["bad"]}
    actual = compared(target, live, repair=True)
    assert keys(actual) == {"different": sorted([*states, "value"]), "unreadable": ["bad"]}
    assert actual.column_counts == {"_deleted_at": 2, "_stale": 2, "_timestamp": 1, "n": 1}
    assert rows_as_text(target) == before


@pytest.mark.long
def test_compares_the_version_of_soft_deleted_rows(spark: SparkSession, postgres_target: Target) -> None:
    """As after a restore of the table, `older` has an older deletion and `ahead` a newer deletion than the topic."""
    target, log = postgres_target.in_mode(Mode.SOFT_DELETE), Log("test.thing", partitions=1)
    for commit, key in enumerate(("older", "ahead")):
        put(log, key, commit)
    target.run(log, SCHEMAS)
    delete(log, "older", 10)
    delete(log, "ahead", 11)
    delete(log, "older", 20)
    target.run(log, SCHEMAS)
    before = target.state("_deleted_at", "_sequence")
    damage(target, "older", _sequence=sequence(10), _offset=2, _deleted_at="2026-01-02 00:00:00+00")
    damage(target, "ahead", _sequence=sequence(99))
    put(log, "ahead", 11)  # sent again
    target.run(log, SCHEMAS)
    live = LiveTopic(spark, log, SCHEMAS)
    assert keys(compared(target, live, repair=True)) == {"zombie": ["older"], "ahead": ["ahead"]}
    assert target.state("_deleted_at", "_sequence")["older"] == before["older"]


@pytest.mark.parametrize(
    "mode",
    [Mode.SOFT_DELETE, *(pytest.param(mode, marks=pytest.mark.long) for mode in (Mode.HARD_DELETE, Mode.HISTORY))],
)
def test_finds_a_deletion_with_the_sequence_of_the_row(
    spark: SparkSession, postgres_target: Target, mode: Mode
) -> None:
    """The records of one COPY statement have the same sequence. The state of `c` is not a difference."""
    target, log = postgres_target.in_mode(mode), Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "c", 1)
    target.run(log, SCHEMAS)
    delete(log, "a", 1)
    delete(log, "c", 1)
    put(log, "b", 2)
    before = [row for row in target.rows() if row["aggregate_id"] == "a"]
    target.run(log, SCHEMAS)
    after = target.state("_deleted_at") if mode is Mode.SOFT_DELETE else target.state()
    live = LiveTopic(spark, log, SCHEMAS)
    if mode is Mode.HARD_DELETE:
        restore(target, before)
    elif mode is Mode.SOFT_DELETE:
        damage(target, "a", _offset=0, _deleted_at=None)
    else:
        damage(target, "a", _valid_to=None)
        assert keys(compared(target, live)) == {"zombie": ["a"]}
        return
    assert keys(compared(target, live, repair=True)) == {"zombie": ["a"]}
    assert (target.state("_deleted_at") if mode is Mode.SOFT_DELETE else target.state()) == after


def test_compares_the_current_versions_of_a_history(spark: SparkSession, table: Target) -> None:
    target, log = table.in_mode(Mode.HISTORY), Log("test.thing", partitions=1)
    for commit, key in enumerate(("a", "b", "ended", "same", "a", "b", "same")):
        put(log, key, commit)
    delete(log, "ended", 7)
    put(log, "b", 5)  # a copy of the same event
    put(log, "same", 6)  # another event
    target.run(log, SCHEMAS)
    live = LiveTopic(spark, log, SCHEMAS)
    before = rows_as_text(target)
    damage(target, "a", "_valid_to is null", n=99, _valid_from="2026-01-02 00:00:00+00")
    damage(target, "b", "_valid_to is null", n=99)
    actual = compared(target, live, repair=True)
    assert keys(actual) == {"different": ["a", "b"]}
    assert actual.column_counts == {"_valid_from": 1, "n": 2}
    assert rows_as_text(target) == before


@pytest.mark.long
def test_reports_duplicate_rows_and_repairs_the_others(spark: SparkSession, delta_target: Target) -> None:
    log = Log("test.thing")
    for commit, key in enumerate("abc"):
        put(log, key, commit)
    delta_target.run(log, SCHEMAS)
    live = LiveTopic(spark, log, SCHEMAS)
    rows = spark.table(sql_name(delta_target))
    spark.sql(f"INSERT INTO {sql_name(delta_target)} SELECT * FROM {{rows}} WHERE aggregate_id = 'a'", rows=rows)
    damage(delta_target, "b", n=99)
    messages: list[str] = []
    result = reconcile(spark, delta_target.job, messages.append, repair=True, topic=live.topic())
    assert {kind.value: keys for kind, keys in result.examples.items() if keys} == {
        "different": ["b"],
        "duplicate": ["a"],
    }
    assert (result.result, result.repaired_count) == (ComparisonResult.DIFFERENT, 1)
    assert any("outbox-rebuild" in message for message in messages)
    assert [row["n"] for row in delta_target.rows() if row["aggregate_id"] == "b"] == [1]


OLD = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": "none"}]}  # type: ignore[misc]
NEWEST = {**OLD, "fields": [*NEW["fields"], {"name": "more", "type": "string", "default": ""}]}


def test_rows_of_an_older_schema_have_the_default(spark: SparkSession, postgres_target: Target) -> None:
    log = Log("test.thing")
    log.append("old", framed(OLD, 1, {"n": 1}), sequence(1))
    postgres_target.run(log, Schemas({1: OLD}, newest=1))
    log.append("new", framed(NEW, 2, {"n": 2, "note": "x"}), sequence(2))
    postgres_target.run(log, Schemas({1: OLD, 2: NEW}, newest=2))
    assert postgres_target.dsn is not None
    assert isinstance(postgres_target.job.target, PostgresTarget)
    with psycopg.connect(**postgres_target.dsn) as connection:
        table = Identifier(postgres_target.job.target.schema, "thing")
        connection.execute(SQL("alter table {} add column remark text default 'by hand'").format(table))
    live = LiveTopic(spark, log, Schemas({1: OLD, 2: NEW, 3: NEWEST}, newest=3))
    actual = compared(postgres_target, live)
    assert keys(actual) == {}
    assert actual.uncompared == ["more", "remark"]


@pytest.mark.long
def test_compares_a_lake_column_whose_field_was_renamed_in_case(spark: SparkSession, delta_target: Target) -> None:
    log = Log("test.thing")
    upper = {**OLD, "fields": [*OLD["fields"], {"name": "Note", "type": "string", "default": "none"}]}  # type: ignore[misc]
    log.append("old", framed(upper, 1, {"n": 1, "Note": "none"}), sequence(1))
    delta_target.run(log, Schemas({1: upper}, newest=1))
    log.append("new", framed(NEW, 2, {"n": 2, "note": "x"}), sequence(2))
    schemas = Schemas({1: upper, 2: NEW}, newest=2)
    delta_target.run(log, schemas)
    damage(delta_target, "new", note="changed")
    actual = compared(delta_target, LiveTopic(spark, log, schemas))
    assert (keys(actual), actual.column_counts) == ({"different": ["new"]}, {"note": 1})
    assert actual.uncompared == []


@pytest.mark.long
def test_json_null_is_a_tombstone(spark: SparkSession, postgres_target: Target) -> None:
    options = structs.replace(postgres_target.job.options, value_format=RecordFormat.JSON)
    postgres_target.job = structs.replace(postgres_target.job, options=options)
    log = Log("test.thing")
    log.append("a", b'{"n": 1}', sequence(1))
    log.append("b", b"null", sequence(2))
    postgres_target.run(log, SCHEMAS)
    assert keys(compared(postgres_target, LiveTopic(spark, log, SCHEMAS))) == {}
