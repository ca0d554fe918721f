"""Format the results of outbox-materialize and outbox-rebuild as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from outbox_common.error_text import one_line
from outbox_events.errors import OutboxError
from outbox_spark.commands.exit_codes import Exit, exit_code, failure_fields
from outbox_spark.jobs.model import MaterializeJob, Outcome, Status, offsets_json

_TABLE_COLUMNS = [
    "aggregate", "target", "table", "status", "records", "keys", "upserts", "deletes", "tombstones",
    "quarantined", "seconds",
]  # fmt: skip


def failed_outcome(job: MaterializeJob, error: OutboxError) -> Outcome:
    return Outcome(**job.report_fields, status=Status.FAILED, **failure_fields(error))


def exit_of(outcomes: Sequence[Outcome]) -> Exit:
    return exit_code(outcome.transient for outcome in outcomes if outcome.status is Status.FAILED)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Return `{"materializations": [...]}` with one entry per job, in the order of the jobs."""
    return json.dumps({"materializations": [_entry(outcome) for outcome in outcomes]}, indent=2)


def _entry(outcome: Outcome) -> dict[str, Any]:
    fields = asdict(outcome)
    offsets = {"from": offsets_json(fields.pop("offsets_from")), "to": offsets_json(fields.pop("offsets_to"))}
    return {**fields, "offsets": offsets}


def as_table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with one line per job."""
    rows = [[str(getattr(outcome, name)) for name in _TABLE_COLUMNS] for outcome in outcomes]
    return "\n".join(aligned_lines([_TABLE_COLUMNS, *rows]))


def aligned_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns and escaped control characters."""
    rows = [list(map(one_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
