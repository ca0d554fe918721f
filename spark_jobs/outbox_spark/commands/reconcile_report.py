"""Format the results of outbox-reconcile as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from outbox_common.error_text import one_line
from outbox_events.errors import OutboxError
from outbox_spark.commands.exit_codes import Exit, exit_code, failure_fields
from outbox_spark.commands.run_report import aligned_lines
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.runs.compare_source import SourceDifferences, SourceKind
from outbox_spark.runs.row_differences import DifferenceKind


class ComparisonResult(StrEnum):
    """Result of the comparison of one table."""

    SAME = "same"
    DIFFERENT = "different"
    REPAIRED = "repaired"
    FAILED = "failed"


@dataclass(frozen=True)
class ReconciledTable:
    """Result of outbox-reconcile for one table."""

    job: MaterializeJob
    result: ComparisonResult
    counts: Mapping[DifferenceKind, int] = field(default_factory=dict)
    examples: Mapping[DifferenceKind, Sequence[str]] = field(default_factory=dict)
    column_counts: Mapping[str, int] = field(default_factory=dict)
    """For each column, the number of keys of the kind `different` whose rows differ in that column."""
    uncompared: Sequence[str] = ()
    """Names of the columns and fields that were not compared."""
    record_count: int = 0
    pass_count: int = 0
    scan_result: str = ""
    repaired_count: int = 0
    seconds: float = 0.0
    source: SourceDifferences | None = None
    error: OutboxError | None = None

    def with_source(self, source: SourceDifferences) -> ReconciledTable:
        """Return this result with the differences from the source added. outbox-reconcile does not repair them."""
        result = ComparisonResult.DIFFERENT if source.is_different else self.result
        return replace(self, source=source, result=result)


def failed_comparison(job: MaterializeJob, error: OutboxError) -> ReconciledTable:
    return ReconciledTable(job, ComparisonResult.FAILED, error=error)


def exit_of(results: Sequence[ReconciledTable]) -> Exit:
    """Return the exit code. Failures take precedence, because a failed comparison may hide differences."""
    failures = [result.error.transient for result in results if result.error is not None]
    return exit_code(failures, has_findings=any(result.result is ComparisonResult.DIFFERENT for result in results))


def as_json(results: Sequence[ReconciledTable]) -> str:
    """Return `{"reconciliations": [...]}` with one entry per table, in the order of the jobs."""
    return json.dumps({"reconciliations": [_entry(result) for result in results]}, indent=2)


def _entry(result: ReconciledTable) -> dict[str, Any]:
    return {
        **result.job.report_fields,
        "result": result.result,
        "differences": {
            kind.value: {"count": result.counts.get(kind, 0), "examples": list(result.examples.get(kind, []))}
            for kind in DifferenceKind
        },
        "columns": dict(result.column_counts),
        "not_compared": list(result.uncompared),
        "repaired": result.repaired_count,
        "records": result.record_count,
        "passes": result.pass_count,
        "scan": result.scan_result,
        "source": None if result.source is None else _source_entry(result.source),
        "seconds": result.seconds,
        **failure_fields(result.error),
    }


def _source_entry(source: SourceDifferences) -> dict[str, Any]:
    return {
        **{
            kind.value: {"count": source.counts.get(kind, 0), "examples": list(source.examples.get(kind, []))}
            for kind in SourceKind
        },
        "columns": dict(source.column_counts),
        "not_compared": list(source.uncompared),
        "candidates": source.candidate_count,
    }


def as_table(results: Sequence[ReconciledTable]) -> str:
    """Return one line per table, and below each line the example keys of the table."""
    rows = [["aggregate", "target", "table", "result", *[kind.value for kind in DifferenceKind], "repaired"]]
    for result in results:
        counts = [str(result.counts.get(kind, 0)) for kind in DifferenceKind]
        names = [result.job.aggregate, result.job.target_name, result.job.table, result.result]
        rows.append([*names, *counts, str(result.repaired_count)])
    return "\n".join([*aligned_lines(rows), *(one_line(line) for result in results for line in _examples(result))])


def _examples(result: ReconciledTable) -> list[str]:
    table, source = f"{result.job.target_name}.{result.job.table}", result.source
    lines = [f"{table} {kind.value}: {', '.join(keys)}" for kind, keys in result.examples.items() if keys]
    lines += _column_lines(table, result.column_counts, result.uncompared)
    if source is not None:
        counts = ", ".join(f"{source.counts.get(kind, 0)} {kind}" for kind in SourceKind)
        lines.append(f"{table} against the source: {counts}")
        lines += [f"{table} source {kind}: {', '.join(keys)}" for kind, keys in source.examples.items() if keys]
        lines += _column_lines(f"{table} source", source.column_counts, source.uncompared)
    return lines


def _column_lines(table: str, counts: Mapping[str, int], uncompared: Sequence[str]) -> list[str]:
    different = ", ".join(f"{name} ({count})" for name, count in counts.items())
    lines = [f"{table} different columns: {different}"] if different else []
    return [*lines, f"{table} not compared: {', '.join(uncompared)}"] if uncompared else lines
