"""Outcomes as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outbox_spark.errors import MaterializeError
from outbox_spark.jobs.model import MaterializeJob, Outcome, Status, offsets_json

_TABLE_COLUMNS = [
    "aggregate", "target", "table", "status", "records", "keys", "upserts", "deletes", "tombstones",
    "quarantined", "seconds",
]  # fmt: skip


def failed(job: MaterializeJob, error: MaterializeError) -> Outcome:
    """The outcome of a job that raised."""
    return Outcome(
        aggregate=job.aggregate,
        topic=job.topic,
        target=job.target_name,
        table=job.table,
        status=Status.FAILED,
        error=error.message,
        hint=error.hint,
        transient=error.transient,
    )


def as_json(outcomes: Sequence[Outcome]) -> str:
    """`{"materializations": [...]}`, one entry per job, in the order of the pipeline file."""
    return json.dumps({"materializations": [_entry(outcome) for outcome in outcomes]}, indent=2)


def _entry(outcome: Outcome) -> dict[str, Any]:
    return {
        **{name: getattr(outcome, name) for name in ("aggregate", "topic", "target", "table", "status")},
        **{name: getattr(outcome, name) for name in ("records", "keys", "upserts", "deletes", "tombstones")},
        "quarantined": outcome.quarantined,
        "batches": outcome.batches,
        "seconds": outcome.seconds,
        "offsets": {"from": offsets_json(outcome.offsets_from), "to": offsets_json(outcome.offsets_to)},
        "error": outcome.error,
        "hint": outcome.hint,
        "transient": None if outcome.error is None else outcome.transient,
    }


def as_table(outcomes: Sequence[Outcome]) -> str:
    """A table with one line per job."""
    lines = [
        _TABLE_COLUMNS,
        *([str(getattr(outcome, name)) for name in _TABLE_COLUMNS] for outcome in outcomes),
    ]
    widths = [max(len(line[index]) for line in lines) for index in range(len(_TABLE_COLUMNS))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
