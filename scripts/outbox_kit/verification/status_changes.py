"""What has changed since the run before: `outbox verify --every` prints nothing else."""

from __future__ import annotations

from outbox_kit.rules import Check, Status


class Drift:
    """Remembers the status of every check from one run to the next."""

    def __init__(self) -> None:
        self._before: dict[str, Status] = {}

    def changes(self, checks: list[Check]) -> list[str]:
        """One line per check whose status is another than before; the first run shows what is not well."""
        first = not self._before
        lines = []
        for check in checks:
            before = Status.PASS if first else self._before.get(check.id, Status.PASS)
            if check.status is not before:
                lines.append(f"{check.id}: {before} → {check.status}: {check.seen}")
        self._before = {check.id: check.status for check in checks}
        return lines
