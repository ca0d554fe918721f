"""Define rules for pipeline and environment files: schema files, targets, materialized columns, backfill queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from outbox_common.column_problems import MAX_PRECISION, column_problems
from outbox_common.object_stores import hadoop_warehouse, s3_scheme
from outbox_events.errors import ConfigurationError
from outbox_events.schemas.avro_schema import load
from outbox_kit.linting.lint_rule import LintInput, LintRules, violation
from outbox_kit.pipeline import Aggregate, PostgresTarget, inlined_schema
from outbox_kit.pipeline.environment import DeltaTarget
from outbox_kit.results.checks import Finding, Severity

RULES = LintRules()
UNSTABLE = re.compile(
    r"\b((now|clock_timestamp|statement_timestamp|random|gen_random_uuid)\s*\(|current_(timestamp|date|time)\b)",
    re.IGNORECASE,
)
BUILDS_OBJECT = re.compile(r"\bjsonb?_build_object\b", re.IGNORECASE)
# Expressions that return fields whose names are not literals in the query.
UNNAMED_FIELDS = re.compile(r"\|\||\b(row_to_json|to_jsonb?|jsonb?_object_agg)\b", re.IGNORECASE)


def schema_error(aggregate: Aggregate) -> ConfigurationError | None:
    """Return the error in an aggregate's schema files, or None if they are valid or the aggregate has no schema."""
    if aggregate.schema_file is not None:
        try:
            inlined_schema(aggregate)
        except ConfigurationError as error:
            return error
    return None


@RULES.rule(
    "files",
    "the connector config can be rendered from the pipeline file, the environment file and the template",
    reason="the other rules need the rendered config",
)
def check_files(lint_input: LintInput) -> Iterator[Finding]:
    if lint_input.error is not None:
        message, hint = lint_input.error
        yield violation(message, "a rendered connector config", hint)


@RULES.rule(
    "schema.file",
    "the schema file of every aggregate type exists and contains an Avro record schema",
    reason="`apply` registers the schema, and payloads are encoded with the schema",
)
def check_schema_file(lint_input: LintInput) -> Iterator[Finding]:
    for name, aggregate in lint_input.pipeline.routed.items():
        error = schema_error(aggregate)
        if error is not None:
            yield violation(f"aggregate type {name}: {error.message}", "an Avro record schema", error.hint)


@RULES.rule(
    "materialization.target",
    "every target that a materialization names is in the environment file",
    reason="otherwise the Spark job does not have a database or catalog to write to",
)
def check_materialization_target(lint_input: LintInput) -> Iterator[Finding]:
    targets = lint_input.environment.targets
    declared = ", ".join(sorted(targets)) or "none"
    for name in dict.fromkeys(entry.target for entry in lint_input.pipeline.materializations):
        if name not in targets:
            remedy = f"add {name} to `targets` in the environment file, or choose an existing target"
            yield violation(f"environment {lint_input.environment.name} has no target {name}", declared, remedy)


@RULES.rule(
    "materialization.mode",
    "Iceberg tables do not have `mode: history`",
    reason="the Spark commands reject history tables in Iceberg",
)
def check_materialization_mode(lint_input: LintInput) -> Iterator[Finding]:
    for entry in lint_input.pipeline.materializations:
        target = lint_input.environment.targets.get(entry.target)
        if entry.mode == "history" and target is not None and target.kind == "iceberg":
            actual = f"aggregate type {entry.aggregate}: mode history in {entry.target}, a target of kind iceberg"
            yield violation(actual, "hard-delete or soft-delete", "change the mode, or use PostgreSQL or Delta")


@RULES.rule(
    "materialization.single-writer",
    "for lake tables on S3, a catalog or a log store detects conflicting commits, or `single_writer` is set",
    reason="if two drivers commit at the same time, one of the commits can be lost",
    severity=Severity.WARNING,
)
def check_single_writer(lint_input: LintInput) -> Iterator[Finding]:
    for name, target in lint_input.environment.targets.items():
        if isinstance(target, PostgresTarget) or target.single_writer:
            continue
        location = str(target.path) if isinstance(target, DeltaTarget) else hadoop_warehouse(target.catalog)
        if s3_scheme(location) is not None:
            remedy = f"see `One run at a time` in docs/targets-lake.md, then set targets.{name}.single_writer to true"
            yield violation(f"target {name}: {location}", "detected conflicts, or a single writer", remedy)


@RULES.rule(
    "materialization.columns",
    "fields of a materialized schema are valid columns: names are not reserved and are unique regardless of case (even "
    f"in nested records), records are not recursive, and decimals have a precision of 1 to {MAX_PRECISION}",
    reason="the Spark job detects an invalid schema only after records with this schema are on the topic",
)
def check_materialized_columns(lint_input: LintInput) -> Iterator[Finding]:
    kinds_by_aggregate: dict[str, set[str]] = {}
    for entry in lint_input.pipeline.materializations:
        target = lint_input.environment.targets.get(entry.target)
        kinds_by_aggregate.setdefault(entry.aggregate, set()).add("" if target is None else target.kind)
    for name, kinds in kinds_by_aggregate.items():
        aggregate = lint_input.pipeline.aggregates[name]
        if schema_error(aggregate) is not None:
            continue
        for problem in column_problems(load(inlined_schema(aggregate)), sorted(kinds)):
            remedy = f"{problem.remedy} before the first record is written"
            yield violation(f"aggregate type {name}: {problem.message}", "a valid column", remedy)


@RULES.rule(
    "backfill.query",
    "a backfill query is one SELECT that returns the required columns",
    reason="`outbox backfill` writes outbox rows from these columns",
)
def check_backfill_query(lint_input: LintInput) -> Iterator[Finding]:
    for name, aggregate in lint_input.pipeline.aggregates.items():
        if aggregate.backfill is None:
            continue
        query = re.sub(r"--[^\n]*|/\*.*?\*/", " ", aggregate.backfill.query, flags=re.DOTALL)
        required = [*aggregate.backfill.id_columns, "payload", *filter(None, [aggregate.partition_field])]
        missing = [column for column in required if not re.search(rf"\b{re.escape(column)}\b", query, re.IGNORECASE)]
        if missing:
            actual = f"aggregate type {name}: the query does not name {', '.join(missing)}"
            yield violation(actual, ", ".join(required), "select a column with each of these names: ... as payload")
        if not re.match(r"\s*(select|with)\b", query, re.IGNORECASE) or ";" in query.strip().rstrip(";"):
            yield violation(f"aggregate type {name}: the query is not one SELECT", "SELECT ...", "write one SELECT")


@RULES.rule(
    "backfill.fields",
    "a backfill query that builds the payload with jsonb_build_object() names every field of the schema",
    reason="`outbox backfill` writes the default of a field that the query does not return",
    severity=Severity.WARNING,
)
def check_backfill_fields(lint_input: LintInput) -> Iterator[Finding]:
    for name, aggregate in lint_input.pipeline.with_schemas.items():
        query = aggregate.backfill.query if aggregate.backfill else ""
        if not BUILDS_OBJECT.search(query) or UNNAMED_FIELDS.search(query) or schema_error(aggregate):
            continue
        fields = [field["name"] for field in json.loads(inlined_schema(aggregate))["fields"]]
        missing = [field for field in fields if f"'{field}'" not in query]
        if missing:
            seen = f"aggregate type {name}: the query does not name {', '.join(missing)}"
            yield violation(
                seen, "every field of the schema", "add the fields to the query: jsonb_build_object('FIELD', ...)"
            )


@RULES.rule(
    "backfill.stable",
    "a backfill query does not call a function whose result differs between two calls, such as now()",
    reason="`outbox verify --states` and `outbox stuck` cannot compare states that change with every query",
    severity=Severity.WARNING,
)
def check_backfill_stable(lint_input: LintInput) -> Iterator[Finding]:
    for name, aggregate in lint_input.pipeline.aggregates.items():
        found = UNSTABLE.search(aggregate.backfill.query) if aggregate.backfill else None
        if found:
            seen = f"aggregate type {name}: the query contains {found[0].rstrip('( ')}"
            yield violation(seen, "only values of rows", "return a column, such as updated_at, instead")
