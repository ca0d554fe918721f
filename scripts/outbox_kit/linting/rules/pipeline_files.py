"""Rules for pipeline and environment files: schema files, targets, materialized columns, backfill queries."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from outbox_kit.errors import ConfigurationError
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, violation
from outbox_kit.pipeline import Aggregate, inlined_schema
from outbox_kit.rules import Finding

# Columns that outbox-kit adds to every materialized table (docs/materialization.md).
POSITION_COLUMNS = ("_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp")
RESERVED_COLUMNS = {"aggregate_id", *POSITION_COLUMNS, "_deleted", "_reason", "_schema_id", "_key", "_value"}
MAX_PRECISION = 38
RULES = LintRules()


def schema_error(aggregate: Aggregate) -> ConfigurationError | None:
    """Return the error in an aggregate's schema files, None for valid files and for an aggregate without a schema."""
    if aggregate.schema_file is not None:
        try:
            inlined_schema(aggregate)
        except ConfigurationError as error:
            return error
    return None


@RULES.rule(
    "files",
    "pipeline file, environment file and template can be read and rendered",
    reason="the other rules need the rendered config",
)
def files(lint_input: LintInput) -> Iterator[Finding]:
    if lint_input.error is not None:
        message, hint = lint_input.error
        yield violation(message, "files that can be rendered", hint)


@RULES.rule(
    "schema.file",
    "the schema file of every aggregate exists and contains an Avro record schema",
    reason="`apply` registers the schema, and payloads are encoded with it",
)
def schema_file(lint_input: LintInput) -> Iterator[Finding]:
    for name, aggregate in lint_input.pipeline.routed.items():
        error = schema_error(aggregate)
        if error is not None:
            yield violation(f"aggregate {name}: {error.message}", "an Avro record schema", error.hint)


@RULES.rule(
    "materialization.target",
    "every target that a materialization names is in the environment file",
    reason="the Spark job has no database or catalog to write to",
)
def materialization_target(lint_input: LintInput) -> Iterator[Finding]:
    targets = lint_input.environment.targets
    declared = ", ".join(sorted(targets)) or "none"
    for name in dict.fromkeys(entry.target for entry in lint_input.pipeline.materializations):
        if name not in targets:
            remedy = f"add the target to `targets`, or choose one of: {declared}"
            yield violation(f"target {name} is not in environment {lint_input.environment.name}", declared, remedy)


@RULES.rule(
    "materialization.columns",
    "fields of a materialized schema are valid columns: no name is reserved, no two names differ only in case, and "
    f"decimals have at most {MAX_PRECISION} digits",
    reason="the Spark job rejects such a schema, when records with the schema are already on the topic",
)
def materialized_columns(lint_input: LintInput) -> Iterator[Finding]:
    for name in dict.fromkeys(entry.aggregate for entry in lint_input.pipeline.materializations):
        aggregate = lint_input.pipeline.aggregates[name]
        fields = [] if schema_error(aggregate) is not None else json.loads(inlined_schema(aggregate))["fields"]
        for problem in _column_problems(fields):
            remedy = "rename the field, or choose another type, before the first record is written"
            yield violation(f"aggregate {name}: {problem}", "a valid column", remedy)


def _column_problems(fields: list[dict[str, Any]]) -> Iterator[str]:
    counts = Counter(str(field["name"]).lower() for field in fields)
    for field in fields:
        name = str(field["name"])
        if name.lower() in RESERVED_COLUMNS:
            yield f"field {name} has a reserved column name"
        elif counts[name.lower()] > 1:
            yield f"field {name} differs from another field only in case"
        precision = _precision(field["type"])
        if precision > MAX_PRECISION:
            yield f"field {name} is a decimal of {precision} digits, the maximum is {MAX_PRECISION}"


def _precision(schema: Any) -> int:  # noqa: ANN401 - any schema
    if isinstance(schema, list):
        return max(map(_precision, schema), default=0)
    is_decimal = isinstance(schema, dict) and schema.get("logicalType") == "decimal"
    return int(schema.get("precision", 0)) if is_decimal else 0


@RULES.rule(
    "backfill.query",
    "a backfill query is one SELECT that returns the required columns",
    reason="`outbox backfill` creates outbox rows from these columns",
)
def backfill_query(lint_input: LintInput) -> Iterator[Finding]:
    for name, aggregate in lint_input.pipeline.aggregates.items():
        if aggregate.backfill is None:
            continue
        query = re.sub(r"--[^\n]*|/\*.*?\*/", " ", aggregate.backfill.query, flags=re.DOTALL)
        required = ["aggregate_id", "payload", *filter(None, [aggregate.partition_field])]
        missing = [column for column in required if not re.search(rf"\b{re.escape(column)}\b", query, re.IGNORECASE)]
        if missing:
            actual = f"aggregate {name}: the query does not name {', '.join(missing)}"
            yield violation(actual, ", ".join(required), "select each column under its name: ... as payload")
        if not re.match(r"\s*(select|with)\b", query, re.IGNORECASE) or ";" in query.strip().rstrip(";"):
            yield violation(f"aggregate {name}: the query is not one SELECT", "SELECT ...", "write one SELECT")
