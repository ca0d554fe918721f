"""Changes of check statuses between runs, which `outbox verify --every` prints."""

from __future__ import annotations

from outbox_kit.rules import Check, Status


class StatusChanges:
    """Compares the checks of each run with those of the previous one."""

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
