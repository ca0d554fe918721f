"""Result of one run of `verify`, and its JSON form."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox_kit.results.checks import Check, Status

FORMAT = 1
"""Version of the JSON document; incremented when a key changes its meaning or is removed."""

STATUSES_WORST_FIRST = {Status.FAIL: "failed", Status.WARN: "warned", Status.UNKNOWN: "unknown", Status.PASS: "passed"}


@dataclass(frozen=True)
class Report:
    """Checks of one pipeline in one environment, from one run of `verify`."""

    pipeline: str
    environment: str
    started_at: datetime
    checks: list[Check]

    @property
    def failed(self) -> bool:
        """Whether a check failed. Warnings and unknown checks do not count."""
        return worst_status(self.checks) is Status.FAIL

    @property
    def summary(self) -> str:
        """Numbers of checks by status, such as `2 failed, 1 unknown, 60 passed`."""
        counts = Counter(check.status for check in self.checks)
        return ", ".join(f"{counts[status]} {name}" for status, name in STATUSES_WORST_FIRST.items() if counts[status])


def worst_status(checks: list[Check]) -> Status:
    """Return the worst status of the checks, PASS for an empty list."""
    statuses = {check.status for check in checks}
    return next((status for status in STATUSES_WORST_FIRST if status in statuses), Status.PASS)


def to_json(checks: list[Check]) -> dict[str, Any]:
    """Return `{"format": 1, "checks": [...]}`, one object per check."""
    return {"format": FORMAT, "checks": [dataclasses.asdict(check) for check in checks]}


class StatusChanges:
    """Comparison of the statuses in consecutive runs, for `outbox verify --every`."""

    def __init__(self) -> None:
        self._previous_statuses: dict[str, Status] = {}

    def since_last_run(self, checks: list[Check]) -> list[str]:
        """Return a line for each check whose status changed; in the first run, for each check that did not pass."""
        lines = []
        for check in checks:
            previous_status = self._previous_statuses.get(check.id, Status.PASS)
            if check.status is not previous_status:
                lines.append(f"{check.id}: {previous_status} → {check.status}: {check.seen}")
        self._previous_statuses = {check.id: check.status for check in checks}
        return lines
