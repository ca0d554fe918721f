"""Schemas, the tables made of them, and backfill queries."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from outbox_kit.errors import ConfigurationError
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule
from outbox_kit.pipeline import Aggregate, inlined

# Columns that every materialized table has of its own (docs/materialization.md).
POSITION_COLUMNS = ("_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp")
TAKEN_COLUMNS = {"aggregate_id", *POSITION_COLUMNS, "_deleted", "_reason", "_schema_id", "_key", "_value"}
MAX_PRECISION = 38


def schema_problem(aggregate: Aggregate) -> tuple[str, str] | None:
    """What is wrong with an aggregate's schema files, and the next step; None when nothing is, or it has none."""
    if aggregate.schema_file is None:
        return None
    try:
        inlined(aggregate)
    except ConfigurationError as error:
        return error.message, error.hint
    return None


@rule(
    "files",
    "pipeline file, environment file and template can be read and rendered",
    why="no other rule can be looked at otherwise",
)
def files(target: Target) -> Iterator[Finding]:
    if target.problem is not None:
        seen, remedy = target.problem
        yield Finding(seen, "files that can be rendered", remedy)


@rule(
    "schema.file",
    "the schema file of every aggregate exists, and holds an Avro record",
    why="`apply` registers it, and every payload is encoded by it",
)
def schema_file(target: Target) -> Iterator[Finding]:
    for name, aggregate in target.pipeline.routed.items():
        problem = schema_problem(aggregate)
        if problem is not None:
            yield Finding(f"aggregate {name}: {problem[0]}", "an Avro record schema", problem[1])


@rule(
    "materialization.target",
    "every target that a materialization names is in the environment file",
    why="the job would have nowhere to write",
)
def known_target(target: Target) -> Iterator[Finding]:
    known = ", ".join(sorted(target.environment.targets)) or "none"
    for name in dict.fromkeys(entry.target for entry in target.pipeline.materializations):
        if name not in target.environment.targets:
            remedy = f"add it to `targets`, or choose one of: {known}"
            yield Finding(f"target {name} is not in environment {target.environment.name}", known, remedy)


@rule(
    "materialization.columns",
    "fields of a materialized schema can be columns: no name is taken, none twice but for case, decimals fit",
    why="the job would refuse the topic after the rows are there",
)
def table_columns(target: Target) -> Iterator[Finding]:
    wanted = dict.fromkeys(entry.aggregate for entry in target.pipeline.materializations)
    for name in wanted:
        for problem in _column_problems(_fields(target.pipeline.aggregates[name])):
            remedy = "rename the field, or choose another type, before the first record is written"
            yield Finding(f"aggregate {name}: {problem}", "a field that can be a column", remedy)


def _fields(aggregate: Aggregate) -> list[dict[str, Any]]:
    if schema_problem(aggregate) is not None:
        return []
    return list(json.loads(inlined(aggregate))["fields"])


def _column_problems(fields: list[dict[str, Any]]) -> Iterator[str]:
    counts = Counter(str(field["name"]).lower() for field in fields)
    for field in fields:
        name = str(field["name"])
        if name.lower() in TAKEN_COLUMNS:
            yield f"field {name} has the name of a column of the kit"
        elif counts[name.lower()] > 1:
            yield f"field {name} differs from another only by case"
        precision = _precision(field["type"])
        if precision > MAX_PRECISION:
            yield f"field {name} is a decimal of {precision} digits, more than {MAX_PRECISION}"


def _precision(node: Any) -> int:  # noqa: ANN401 - any part of a schema
    if isinstance(node, list):
        return max(map(_precision, node), default=0)
    return int(node.get("precision", 0)) if isinstance(node, dict) and node.get("logicalType") == "decimal" else 0


@rule(
    "backfill.query",
    "a backfill query is one SELECT that names the columns it has to give",
    why="`outbox backfill` makes outbox rows of them, by name",
)
def backfill_query(target: Target) -> Iterator[Finding]:
    for name, aggregate in target.pipeline.aggregates.items():
        if aggregate.backfill is None:
            continue
        text = re.sub(r"--[^\n]*|/\*.*?\*/", " ", aggregate.backfill.query, flags=re.DOTALL)
        wanted = ["aggregate_id", "payload", *filter(None, [aggregate.partition_field])]
        missing = [column for column in wanted if not re.search(rf"\b{re.escape(column)}\b", text, re.IGNORECASE)]
        if missing:
            seen = f"aggregate {name}: the query does not name {', '.join(missing)}"
            yield Finding(seen, ", ".join(wanted), "select each column under its name: ... as payload")
        if not re.match(r"\s*(select|with)\b", text, re.IGNORECASE) or ";" in text.strip().rstrip(";"):
            yield Finding(f"aggregate {name}: the query is not one SELECT", "SELECT ...", "write one SELECT")


RULES = (files, schema_file, known_target, table_columns, backfill_query)
