"""The outcome of one run as data, and what people and programs read of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox_kit.rules import Check, Status

FORMAT = 1
"""Of the JSON document; raised when a key changes its meaning or goes."""

# Worst first: what a summary shows of several.
WORST = (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.PASS)


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
    def words(self) -> str:
        """`2 failed, 1 unknown, 60 passed`."""
        counts = Counter(check.status for check in self.checks)
        names = {Status.FAIL: "failed", Status.WARN: "warned", Status.UNKNOWN: "unknown", Status.PASS: "passed"}
        return ", ".join(f"{counts[status]} {names[status]}" for status in WORST if counts[status])


def worst(checks: list[Check]) -> Status:
    """The worst status among them."""
    found = {check.status for check in checks}
    return next((status for status in WORST if status in found), Status.PASS)


def to_json(checks: list[Check]) -> dict[str, Any]:
    """`{"format": 1, "checks": [...]}`, one object per check."""
    return {"format": FORMAT, "checks": [dataclasses.asdict(check) for check in checks]}
