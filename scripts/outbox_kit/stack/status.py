"""What is known of a part's process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessStatus:
    """One part, as Supervisor sees it."""

    name: str
    state: str
    """Supervisor's word in lower case (running, starting, backoff, fatal, exited, stopped), or `orphaned`:
    it runs, and its supervisor is gone."""
    pid: int | None
    seconds: int | None
    """Since it was started; None when it does not run."""
    detail: str = ""
    """Why it does not run, as far as Supervisor knows."""

    @property
    def running(self) -> bool:
        """The process is there and supervised; says nothing about whether it answers."""
        return self.state in {"starting", "running"}
