"""Results of outbox-reconcile as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from outbox_spark.errors import MaterializeError
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.runs.compare_source import SourceDifferences
from outbox_spark.runs.compare_topic import Kind


class Result(StrEnum):
    """How a comparison ended."""

    SAME = "same"
    DIFFERENT = "different"
    MENDED = "mended"
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
        """With what the source table says; nothing mends that."""
        different = source.missing or source.extra
        return replace(self, source=source, result=Result.DIFFERENT if different else self.result)


def failed(job: MaterializeJob, error: MaterializeError) -> Reconciled:
    """The result of a job that raised."""
    return Reconciled(
        aggregate=job.aggregate,
        topic=job.topic,
        target=job.target_name,
        table=job.table,
        result=Result.FAILED,
        error=error.message,
        hint=error.hint,
        transient=error.transient,
    )


def as_json(results: Sequence[Reconciled]) -> str:
    """`{"reconciliations": [...]}`, one entry per table, in the order of the pipeline file."""
    return json.dumps({"reconciliations": [_entry(result) for result in results]}, indent=2)


def _entry(result: Reconciled) -> dict[str, Any]:
    kinds = {
        kind.value: {"count": result.counts.get(kind, 0), "examples": list(result.examples.get(kind, []))}
        for kind in Kind
    }
    source = result.source
    return {
        **{name: getattr(result, name) for name in ("aggregate", "topic", "target", "table", "result")},
        "differences": kinds,
        "repaired": result.repaired,
        "records": result.records,
        "hops": result.hops,
        "scan": result.scan,
        "source": None
        if source is None
        else {
            "missing": {"count": source.missing, "examples": list(source.examples["missing"])},
            "extra": {"count": source.extra, "examples": list(source.examples["extra"])},
            "candidates": source.candidates,
        },
        "seconds": result.seconds,
        "error": result.error,
        "hint": result.hint,
        "transient": None if result.error is None else result.transient,
    }


def as_table(results: Sequence[Reconciled]) -> str:
    """A table with one line per table, and below it the keys."""
    head = ["aggregate", "target", "table", "result", *[kind.value for kind in Kind], "repaired"]
    lines = [head]
    for each in results:
        counts = [str(each.counts.get(kind, 0)) for kind in Kind]
        lines.append([each.aggregate, each.target, each.table, each.result, *counts, str(each.repaired)])
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    for each in results:
        where = f"{each.target}.{each.table}"
        text += [f"{where} {kind.value}: {', '.join(keys)}" for kind, keys in each.examples.items() if keys]
        if each.source is not None:
            text.append(f"{where} against the source: {each.source.missing} missing, {each.source.extra} extra")
            text += [f"{where} source {kind}: {', '.join(keys)}" for kind, keys in each.source.examples.items() if keys]
    return "\n".join(text)
