"""Find and end the processes of one stack, which have a marker on their command lines.

A process id does not identify a service: ids are reused, and services outlive a killed supervisord. The marker is
`outboxkit.stack=<stack id>/<service>`. It is a system property of the JVMs, the identifier of supervisord, and the
cluster_name of PostgreSQL, which also appears in the titles of PostgreSQL's child processes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from outbox_events.errors import WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.layout import Layout

MARKER = "outboxkit.stack"
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A running process of a stack."""

    pid: int
    service: str
    """Name of a service, `supervisor`, or `format` for the process that formats Kafka's log directory."""
    arguments: str

    @property
    def is_backend(self) -> bool:
        """Whether the process is a child of the PostgreSQL server. It then ends together with the server."""
        return self.arguments.startswith("postgres:")


def process_marker(layout: Layout, service: str) -> str:
    """Return the text that a service's command line must contain."""
    return f"{MARKER}={layout.stack_id}/{service}"


def command_lines() -> dict[int, str]:
    """Return a mapping from the pid of every visible process to its command line."""
    if (PROC / "self" / "cmdline").exists():
        return proc_command_lines()
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, errors="replace", timeout=30, check=False
    )
    pairs = (line.strip().partition(" ") for line in listing.stdout.splitlines())
    return {int(pid): arguments.strip() for pid, _, arguments in pairs if pid.isdigit()}


def proc_command_lines() -> dict[int, str]:
    """Read the command lines from /proc, because slim images lack `ps`. A zombie process has an empty command line."""
    arguments = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                raw = (folder / "cmdline").read_bytes()
            except OSError:  # the process has ended
                continue
            arguments[int(folder.name)] = raw.replace(b"\0", b" ").decode(errors="replace").strip()
    return arguments


def find_processes(layout: Layout, services: tuple[str, ...] | None = None) -> list[Process]:
    """Return this stack's running processes, or only those of `services`, even if supervisord was killed."""
    # Match only programs that the stack runs, because the arguments of a shell or editor can also contain the marker.
    pattern = re.compile(
        rf"^(?:.*?/)?(?:java|postgres:?|[Pp]ython[\d.]*) .*{re.escape(MARKER)}={layout.stack_id}/(\w+)"
    )
    matches = ((pid, text, pattern.match(text)) for pid, text in command_lines().items())
    processes = [Process(pid, match.group(1), text) for pid, text, match in matches if match and pid != os.getpid()]
    return [process for process in processes if services is None or process.service in services]


def send_signal(processes: list[Process], signal_number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for process in processes:
        try:
            os.kill(process.pid, signal_number)
        except ProcessLookupError:
            continue


def terminate(layout: Layout, services: tuple[str, ...], *, seconds: float) -> None:
    """Terminate the processes of these services; kill any that still run after `seconds`. Raises WaitTimeoutError."""
    processes = [process for process in find_processes(layout, services) if not process.is_backend]
    # SIGINT requests PostgreSQL's fast shutdown. After SIGTERM, the server would wait for every client to disconnect.
    send_signal([process for process in processes if process.service == "postgres"], signal.SIGINT)
    send_signal([process for process in processes if process.service != "postgres"], signal.SIGTERM)
    try:
        wait_until_ended(layout, services, seconds)
    except WaitTimeoutError:
        send_signal(find_processes(layout, services), signal.SIGKILL)
        wait_until_ended(layout, services, 10)


def wait_until_ended(layout: Layout, services: tuple[str, ...], seconds: float) -> None:
    """Wait until no process of these services runs."""

    def poll() -> Observation[bool]:
        running_processes = [f"{process.service} (pid {process.pid})" for process in find_processes(layout, services)]
        return Observation(None if running_processes else True, ", ".join(running_processes) or "no processes")

    wait_for(f"{', '.join(services)} to end", poll, seconds=seconds, interval=0.1)
