"""Start of the services in the order of their requirements, and detection of services that end during the start."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from outbox_kit.errors import StackError
from outbox_kit.progress import Reporter
from outbox_kit.stack.control import Control, ProcessStatus
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.logs import excerpt, exit_description, redact
from outbox_kit.stack.services.service import Service
from outbox_kit.stack.state import StackState
from outbox_kit.waiting import Observation, wait_for

LOG_LINES = 20
ALIVE = ("starting", "running")


def prepare(services: list[Service]) -> None:
    """Prepare all services in parallel, because initdb and Kafka's storage tool take seconds at the first start."""
    with ThreadPoolExecutor(max_workers=len(services)) as pool:
        for future in [pool.submit(service.prepare) for service in services]:
            future.result()


class Startup:
    """Start of services under a running supervisord."""

    def __init__(
        self, layout: Layout, state: StackState, services: list[Service], control: Control, progress: Reporter
    ) -> None:
        self.layout = layout
        self.state = state
        self.services = services
        self.control = control
        self.progress = progress
        self.started: dict[str, float] = {}
        self.pids: dict[str, int] = {}
        self.ready: set[str] = set()
        self.results: dict[str, str] = {}

    def run(self) -> None:
        """Start all services and wait until they are ready. Raises StackError if one ends or exceeds its time limit."""
        limit = sum(service.start_seconds for service in self.services)
        wait_for("the stack to be ready", self.poll, seconds=limit, interval=0.1)

    def poll(self) -> Observation[bool]:
        """Start the services whose requirements are ready, and check those that were started."""
        for service in self.services:
            if service.name not in self.started and self.ready.issuperset(service.requires):
                self.control.start(service.name)
                self.started[service.name] = time.monotonic()
        self.check_alive(self.control.processes())
        for service in self.services:
            if service.name in self.started and service.name not in self.ready:
                self.check(service)
        pending = [service.name for service in self.services if service.name not in self.ready]
        results = [f"{name}: {self.results.get(name, 'not started')}" for name in pending]
        return Observation(None if pending else True, "; ".join(results))

    def check(self, service: Service) -> None:
        """Check one service. Raises StackError when its time limit is exceeded."""
        result = service.check()
        self.results[service.name] = result.text
        seconds = time.monotonic() - self.started[service.name]
        if result.value is not None:
            self.ready.add(service.name)
            self.progress(f"{service.name} is ready after {seconds:.1f} s")
        elif seconds > service.start_seconds:
            problem = f"was not ready within {service.start_seconds:g} s; last check: {result.text}"
            raise self.failure(service.name, problem)

    def check_alive(self, processes: dict[str, ProcessStatus]) -> None:
        """Raise StackError for a service that ended, even if Supervisor has restarted it."""
        for name in self.started:
            status = processes[name]
            restarted = status.pid and self.pids.setdefault(name, status.pid) != status.pid
            if restarted or status.state not in ALIVE:
                reason = exit_description(self.layout, name) or status.detail or f"state {status.state}"
                raise self.failure(name, f"ended ({reason})")

    def failure(self, name: str, problem: str) -> StackError:
        """Return the error for a service, with the end of its log."""
        lines = excerpt(self.layout.log(name), LOG_LINES) or ["(the log is empty)"]
        text = "\n".join(f"    {line}" for line in lines)
        message = redact(f"{name} {problem}\nend of its log:\n{text}", self.state.passwords())
        return StackError(message, f"see the whole log in {self.layout.log(name)}; the stack was stopped")
