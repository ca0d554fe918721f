"""The result of one check of `outbox verify`: a stable id, what was seen, what was expected, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Outcome of a check."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"


class Severity(StrEnum):
    """What is at stake: rows (error) or comfort (warning)."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Check:
    """One check as it came out. `id` never changes its meaning; reports and alerts hang on it."""

    id: str
    status: Status
    seen: str
    expected: str
    remedy: str = ""
    severity: Severity = Severity.ERROR


def check(identifier: str, good: bool, *, seen: str, expected: str, remedy: str) -> Check:
    """A check that passes or fails; the remedy is kept for when it fails."""
    if good:
        return Check(identifier, Status.PASS, seen, expected)
    return Check(identifier, Status.FAIL, seen, expected, remedy)
