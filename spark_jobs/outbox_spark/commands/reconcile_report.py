"""Results of outbox-reconcile, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from outbox_spark.commands.exit_codes import Exit, exit_code, failure_fields
from outbox_spark.commands.run_report import aligned
from outbox_spark.errors import OutboxKitError
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.runs.compare_source import SourceDifferences
from outbox_spark.runs.compare_topic import Kind


class Result(StrEnum):
    """Result of a comparison."""

    SAME = "same"
    DIFFERENT = "different"
    MENDED = "mended"
    """Repaired."""
    FAILED = "failed"


@dataclass(frozen=True)
class Reconciled:
    """The result for one table."""

    aggregate: str
    topic: str
    target: str
    table: str
    result: Result
    counts: Mapping[Kind, int] = field(default_factory=dict)
    examples: Mapping[Kind, Sequence[str]] = field(default_factory=dict)
    records: int = 0
    hops: int = 0
    scan: str = ""
    repaired: int = 0
    seconds: float = 0.0
    source: SourceDifferences | None = None
    error: str | None = None
    hint: str | None = None
    transient: bool = True

    def with_source(self, source: SourceDifferences) -> Reconciled:
        """Return the result with the differences from the source table, which are not repaired."""
        different = source.missing or source.extra
        return replace(self, source=source, result=Result.DIFFERENT if different else self.result)


def failed_comparison(job: MaterializeJob, error: OutboxKitError) -> Reconciled:
    """Return the result of a job that raised."""
    return Reconciled(**job.names, result=Result.FAILED, **failure_fields(error))


def exit_of(results: Sequence[Reconciled]) -> Exit:
    """Return the exit code: failures precede differences, because a failed comparison may hide some."""
    failures = [result.transient for result in results if result.result is Result.FAILED]
    return exit_code(failures, found=any(result.result is Result.DIFFERENT for result in results))


def as_json(results: Sequence[Reconciled]) -> str:
    """Return `{"reconciliations": [...]}`, one entry per table, in the order of the pipeline file."""
    return json.dumps({"reconciliations": [_entry(result) for result in results]}, indent=2)


def _entry(result: Reconciled) -> dict[str, Any]:
    return {
        **{name: getattr(result, name) for name in ("aggregate", "topic", "target", "table", "result")},
        "differences": {
            kind.value: {"count": result.counts.get(kind, 0), "examples": list(result.examples.get(kind, []))}
            for kind in Kind
        },
        **{name: getattr(result, name) for name in ("repaired", "records", "hops", "scan")},
        "source": None if result.source is None else _source_entry(result.source),
        "seconds": result.seconds,
        "error": result.error,
        "hint": result.hint,
        "transient": None if result.error is None else result.transient,
    }


def _source_entry(source: SourceDifferences) -> dict[str, Any]:
    return {
        "missing": {"count": source.missing, "examples": list(source.examples["missing"])},
        "extra": {"count": source.extra, "examples": list(source.examples["extra"])},
        "candidates": source.candidates,
    }


def as_table(results: Sequence[Reconciled]) -> str:
    """Return a table with one line per table, and below it the example keys."""
    rows = [["aggregate", "target", "table", "result", *[kind.value for kind in Kind], "repaired"]]
    for result in results:
        counts = [str(result.counts.get(kind, 0)) for kind in Kind]
        rows.append([result.aggregate, result.target, result.table, result.result, *counts, str(result.repaired)])
    return "\n".join([*aligned(rows), *(line for result in results for line in _examples(result))])


def _examples(result: Reconciled) -> list[str]:
    table, source = f"{result.target}.{result.table}", result.source
    lines = [f"{table} {kind.value}: {', '.join(keys)}" for kind, keys in result.examples.items() if keys]
    if source is not None:
        lines.append(f"{table} against the source: {source.missing} missing, {source.extra} extra")
        lines += [f"{table} source {kind}: {', '.join(keys)}" for kind, keys in source.examples.items() if keys]
    return lines
