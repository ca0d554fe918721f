"""Fields that have every name that occurs in the code of the jobs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.damaged_rows import damage
from tests.spark.kafka_log import POISON, Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target

from outbox_common.column_problems import reserved_by
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import Mode
from outbox_spark.runs.compare_topic import compare_with_topic
from outbox_spark.runs.repair import repair_table

SOURCES = Path(__file__).parents[3] / "spark_jobs"
PACKAGES = ("decoding", "kafka", "runs", "sinks/lake")
WORD = re.compile(r"[a-z_][a-z0-9_]*")
SQL = re.compile(r"\b(select|insert|update|delete|MERGE|where|WHEN|count|struct|bigint)\b")
KEYWORD = re.compile(
    r"add|alter|and|as|by|column|create|delete|distinct|drop|exists|for|from|in|insert|into|is|join|like|not|null|on|or|"
    r"order|over|select|set|table|to|update|using|values|when|where|with|pg_\w+|to_\w+|\w+oid|att\w+|ind\w+|rel\w+"
)
# Columns that Delta, Iceberg and Spark add in MERGE and in other statements.
FOREIGN_NAMES = {
    "_metadata", "_change_type", "_commit_version", "_row_id_", "_source_row_present_", "_target_row_present_",
    "_row_dropped_", "__row_operation", "__row_from_source", "__row_from_target", "_change_ordinal", "col",
}  # fmt: skip


def literals(packages: Sequence[str], pattern: str) -> Iterator[str]:
    """Yield the strings in the code, except docstrings. `pattern` selects the Python files."""
    for path in chain.from_iterable((SOURCES / "outbox_spark" / package).rglob(pattern) for package in packages):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        yield from (
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        )
    for path in SOURCES.rglob("*.java"):
        yield from re.findall(r'"([^"\n]*)"', path.read_text())


def names(target: Target, pattern: str = "*.py") -> list[str]:
    """Return the lower-case names in these files that can be names of fields in a target."""
    kind = type(target.job.target).__name__.removesuffix("Target").lower()
    found = set(FOREIGN_NAMES)
    for literal in literals([*PACKAGES, f"sinks/{kind}"], pattern):
        if WORD.fullmatch(literal):
            found.add(literal)
        elif SQL.search(literal):
            found.update(name for name in WORD.findall(literal) if not KEYWORD.fullmatch(name))
    return sorted(name for name in found if reserved_by(name, kind) is None)


@dataclass
class Filled:
    """A topic whose schema has a field for every name, and the expected rows of its table."""

    fields: list[str]
    registry: Schemas
    log: Log
    expected: dict[str, Any]


def fill(target: Target) -> Filled:
    """Materialize the topic with half of the fields, and again after a new schema version has added the other half."""
    fields = names(target)
    assert len(fields) > 100
    added = fields[1::2]
    schema = {
        "type": "record",
        "name": "Thing",
        "fields": [{"name": name, "type": "long", **({"default": -1} if name in added else {})} for name in fields],
    }
    first = {**schema, "fields": schema["fields"][::2]}
    registry = Schemas({1: first, 2: schema}, newest=1)

    def state(base: int) -> dict[str, Any]:
        return {name: base + index for index, name in enumerate(fields)}

    log = Log("test.thing", partitions=1)
    for commit, key in enumerate("abcd", start=1):
        log.append(key, framed(first, 1, state(commit * 1000)), sequence(commit))
    target.run(log, registry)
    registry.newest = 2
    log.append("a", framed(schema, 2, state(11_000)), sequence(11))
    log.append("b", None, sequence(12))
    log.append("c", b"bad", sequence(13), POISON)
    log.append("e", framed(schema, 2, state(14_000)), sequence(14))
    target.run(log, registry)
    expected = {
        key: state(base) | (dict.fromkeys(added, -1) if base < 11_000 else {})
        for key, base in (("a", 11_000), ("c", 3000), ("d", 4000), ("e", 14_000))
    }
    return Filled(fields, registry, log, expected)


def test_fields_can_have_every_name_that_the_code_uses(target: Target) -> None:
    filled = fill(target)
    assert target.state(*filled.fields) == filled.expected
    assert {row["aggregate_id"] for row in target.rows() if row["_stale"]} == {"c"}
    assert [row["aggregate_id"] for row in target.rows("__quarantine")] == ["c"]


@pytest.mark.long
def test_repairs_rows_whose_fields_have_every_name(spark: SparkSession, target: Target) -> None:
    filled = fill(target)
    damage(target, "e")
    with target.open() as table, ExitStack() as stack:
        topic = LiveTopic(spark, filled.log, filled.registry).topic()
        comparison = compare_with_topic(target.job, table, topic, filled.registry, stack, 9)  # type: ignore[arg-type]
        repair_table(table, comparison)
    assert {kind.value: list(found) for kind, found in comparison.examples.items() if found} == {
        "missing": ["e"],
        "unreadable": ["c"],
    }
    assert target.state(*filled.fields) == filled.expected


@pytest.mark.parametrize(
    ("kind", "name"), [("postgres", "ctid"), ("postgres", "x" * 64), ("delta", "_Row_Dropped_"), ("iceberg", "_pos")]
)
def test_refuses_names_that_the_target_reserves(kind: str, name: str, request: pytest.FixtureRequest) -> None:
    target: Target = request.getfixturevalue(f"{kind}_target")
    schema = {"type": "record", "name": "Thing", "fields": [{"name": name, "type": "long"}]}
    log = Log("test.thing", partitions=1)
    log.append("a", framed(schema, 1, {name: 1}), sequence(1))
    with pytest.raises(SchemaError, match=f"field {name} cannot have this name"):
        target.run(log, Schemas({1: schema}, newest=1))


@pytest.mark.parametrize("kind", ["postgres", pytest.param("delta", marks=pytest.mark.long)])
def test_fields_of_history_tables_can_have_every_name(kind: str, request: pytest.FixtureRequest) -> None:
    target: Target = request.getfixturevalue(f"{kind}_target").in_mode(Mode.HISTORY)
    fields = names(target, "*history*.py")
    schema = {"type": "record", "name": "Thing", "fields": [{"name": name, "type": "long"} for name in fields]}
    registry, log = Schemas({1: schema}, newest=1), Log("test.thing", partitions=1)
    states = [{name: commit * 1000 + index for index, name in enumerate(fields)} for commit in range(4)]
    for commit in (0, 1):
        log.append("a", framed(schema, 1, states[commit]), sequence(commit))
    target.run(log, registry)
    log.append("a", None, sequence(2))
    log.append("a", framed(schema, 1, states[3]), sequence(3))
    log.append("a", b"bad", sequence(4), POISON)
    target.run(log, registry)
    rows = sorted(target.rows(), key=lambda row: row["_offset"])
    assert [{name: row[name] for name in fields} for row in rows] == [states[0], states[1], states[3]]
    assert [(row["_valid_to"] is None, row["_stale"]) for row in rows] == [(False, False), (False, False), (True, True)]
