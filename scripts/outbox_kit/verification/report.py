"""Result of one run of `verify`, and its JSON form."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox_kit.rules import Check, Status

FORMAT = 1
"""Version of the JSON document; incremented when a key changes its meaning or is removed."""

WORST_FIRST = {Status.FAIL: "failed", Status.WARN: "warned", Status.UNKNOWN: "unknown", Status.PASS: "passed"}


@dataclass(frozen=True)
class Report:
    """One run of the checks of a pipeline in an environment."""

    pipeline: str
    environment: str
    at: datetime
    checks: list[Check]

    @property
    def failed(self) -> bool:
        """Whether a check failed; warnings and unknowns do not count."""
        return worst(self.checks) is Status.FAIL

    @property
    def summary(self) -> str:
        """`2 failed, 1 unknown, 60 passed`."""
        counts = Counter(check.status for check in self.checks)
        return ", ".join(f"{counts[status]} {name}" for status, name in WORST_FIRST.items() if counts[status])


def worst(checks: list[Check]) -> Status:
    """Return the worst status of the checks; PASS without any."""
    statuses = {check.status for check in checks}
    return next((status for status in WORST_FIRST if status in statuses), Status.PASS)


def to_json(checks: list[Check]) -> dict[str, Any]:
    """Return `{"format": 1, "checks": [...]}`, one object per check."""
    return {"format": FORMAT, "checks": [dataclasses.asdict(check) for check in checks]}


class StatusChanges:
    """Compares the checks of each run with those of the previous one, for `outbox verify --every`."""

    def __init__(self) -> None:
        self._previous: dict[str, Status] = {}

    def since_last_run(self, checks: list[Check]) -> list[str]:
        """Return one line per check whose status changed; in the first run, per check that did not pass."""
        lines = []
        for check in checks:
            previous = self._previous.get(check.id, Status.PASS)
            if check.status is not previous:
                lines.append(f"{check.id}: {previous} → {check.status}: {check.seen}")
        self._previous = {check.id: check.status for check in checks}
        return lines
