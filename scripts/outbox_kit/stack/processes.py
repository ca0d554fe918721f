"""Finds and ends the processes of one stack by a mark on their command lines.

Process ids alone cannot be trusted: they are reused, and supervisord may be gone while its children run on.
So every process carries `outboxkit.stack=<stack id>/<part>` among its arguments: a system property
of the JVMs, cluster_name of PostgreSQL (which shows it in the titles of its children too), supervisord's
identifier.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from outbox_kit.errors import WaitTimeoutError
from outbox_kit.stack.layout import Layout
from outbox_kit.waiting import Seen, wait_for

MARK = "outboxkit.stack"
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A running process of a stack."""

    pid: int
    part: str
    arguments: str

    @property
    def is_backend(self) -> bool:
        """A child of PostgreSQL, which ends with its parent."""
        return self.arguments.startswith("postgres:")


def mark(layout: Layout, part: str) -> str:
    """Return the text that a part's command line must contain."""
    return f"{MARK}={layout.stack_id}/{part}"


def command_lines() -> dict[int, str]:
    """Return the arguments of every process that can be seen, by pid."""
    if (PROC / "self" / "cmdline").exists():
        return proc_command_lines()
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, errors="replace", check=False
    )
    pairs = (line.strip().partition(" ") for line in listing.stdout.splitlines())
    return {int(pid): arguments.strip() for pid, _, arguments in pairs if pid.isdigit()}


def proc_command_lines() -> dict[int, str]:
    """Read them from /proc, where there is one: slim images have no `ps`. A zombie's are empty."""
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                raw = (folder / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            found[int(folder.name)] = raw.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def find(layout: Layout) -> list[Process]:
    """Return the processes of this stack, whoever their parent is."""
    # A shell or an editor may carry the text as well: only the programs that the stack runs count.
    pattern = re.compile(rf"^(?:.*?/)?(?:java|postgres:?|[Pp]ython[\d.]*) .*{re.escape(MARK)}={layout.stack_id}/(\w+)")
    matches = ((pid, text, pattern.match(text)) for pid, text in command_lines().items())
    return [Process(pid, match.group(1), text) for pid, text, match in matches if match and pid != os.getpid()]


def send(processes: list[Process], number: signal.Signals) -> None:
    """Send a signal to each; one that is gone already is fine."""
    for process in processes:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue


def end(layout: Layout, parts: tuple[str, ...], *, seconds: float) -> None:
    """Ask the processes of these parts to end, then kill what is left; WaitTimeoutError if that fails."""
    asked = [process for process in find(layout) if process.part in parts and not process.is_backend]
    # INT is PostgreSQL's fast shutdown; its TERM would wait for every client to leave.
    send([process for process in asked if process.part == "postgres"], signal.SIGINT)
    send([process for process in asked if process.part != "postgres"], signal.SIGTERM)
    try:
        wait_gone(layout, parts, seconds)
    except WaitTimeoutError:
        send([process for process in find(layout) if process.part in parts], signal.SIGKILL)
        wait_gone(layout, parts, 10)


def wait_gone(layout: Layout, parts: tuple[str, ...], seconds: float) -> None:
    """Wait until no process of these parts runs."""

    def look() -> Seen[bool]:
        left = [f"{process.part} (pid {process.pid})" for process in find(layout) if process.part in parts]
        return Seen(None if left else True, ", ".join(left) or "nothing")

    wait_for(f"{', '.join(parts)} to end", look, seconds=seconds, every=0.1)
