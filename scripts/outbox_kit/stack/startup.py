"""Starts the parts: each as soon as what it needs answers, and all of them watched meanwhile."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from outbox_kit.errors import StackError
from outbox_kit.progress import Progress
from outbox_kit.stack.control import Control, ProcessStatus
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.logs import excerpt, how_it_ended, without
from outbox_kit.stack.services.service import Part
from outbox_kit.stack.state import StackState
from outbox_kit.waiting import Seen, wait_for

LOG_LINES = 20
ALIVE = ("starting", "running")


def prepare(parts: list[Part]) -> None:
    """Prepare all parts at once: the first time it takes initdb and Kafka's storage tool seconds."""
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        for outcome in [pool.submit(part.prepare) for part in parts]:
            outcome.result()


class Startup:
    """One start of some parts under a supervisord that runs already."""

    def __init__(
        self, layout: Layout, state: StackState, parts: list[Part], control: Control, progress: Progress
    ) -> None:
        self.layout = layout
        self.state = state
        self.parts = parts
        self.control = control
        self.progress = progress
        self.started: dict[str, float] = {}
        self.pids: dict[str, int] = {}
        self.ready: set[str] = set()
        self.seen: dict[str, str] = {}

    def run(self) -> None:
        """Return when every part answers; StackError when one ends or does not answer in its time."""
        longest = sum(part.seconds for part in self.parts)
        wait_for("the stack", self.round, seconds=longest, every=0.1)

    def round(self) -> Seen[bool]:
        """Start what can be started, look at what was."""
        for part in self.parts:
            if part.name not in self.started and self.ready.issuperset(part.after):
                self.control.start(part.name)
                self.started[part.name] = time.monotonic()
        self.check_alive(self.control.processes())
        for part in self.parts:
            if part.name in self.started and part.name not in self.ready:
                self.look_at(part)
        waiting = [f"{part.name}: {self.seen.get(part.name, 'not started')}" for part in self.waiting()]
        return Seen(None if waiting else True, "; ".join(waiting))

    def waiting(self) -> list[Part]:
        """Return the parts that do not answer yet."""
        return [part for part in self.parts if part.name not in self.ready]

    def look_at(self, part: Part) -> None:
        """Ask a part; StackError when its time is over."""
        seen = part.look()
        self.seen[part.name] = seen.text
        took = time.monotonic() - self.started[part.name]
        if seen.value is not None:
            self.ready.add(part.name)
            self.progress(f"{part.name} answers after {took:.1f} s")
        elif took > part.seconds:
            raise self.failure(part.name, f"did not answer within {part.seconds:g} s; last seen: {seen.text}")

    def check_alive(self, processes: dict[str, ProcessStatus]) -> None:
        """Raise StackError for a part that ended, also when Supervisor has started it again already."""
        for name in self.started:
            status = processes[name]
            replaced = status.pid and self.pids.setdefault(name, status.pid) != status.pid
            if replaced or status.state not in ALIVE:
                how = how_it_ended(self.layout, name) or status.detail or f"state {status.state}"
                raise self.failure(name, f"ended ({how})")

    def failure(self, name: str, what: str) -> StackError:
        """Return the error for a part, with the end of its log."""
        lines = excerpt(self.layout.log(name), LOG_LINES) or ["(the log is empty)"]
        text = "\n".join(f"    {line}" for line in lines)
        message = without(f"{name} {what}\nthe end of its log:\n{text}", self.state.passwords())
        return StackError(message, f"the whole log is {self.layout.log(name)}; the stack was stopped")
