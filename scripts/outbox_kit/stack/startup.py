"""Start the services in the order of their requirements, and detect services that end early."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from outbox_events.waiting import Observation, wait_for
from outbox_kit.results import Reporter
from outbox_kit.stack.control import Control, ProcessStatus
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.logs import excerpt, exit_description, redact
from outbox_kit.stack.services.service import Service
from outbox_kit.stack.state import StackState

LOG_LINES = 20
ALIVE_STATES = ("starting", "running")


def prepare(services: list[Service]) -> None:
    """Prepare all services in parallel. On the first start, initdb and Kafka's storage tool each take seconds."""
    with ThreadPoolExecutor(max_workers=len(services)) as pool:
        for future in [pool.submit(service.prepare) for service in services]:
            future.result()


@dataclass(eq=False, repr=False)
class Startup:
    """Starts services under a running supervisord."""

    layout: Layout
    state: StackState
    services: list[Service]
    control: Control
    progress: Reporter
    start_times: dict[str, float] = field(init=False, default_factory=dict)
    pids: dict[str, int] = field(init=False, default_factory=dict)
    ready_services: set[str] = field(init=False, default_factory=set)
    check_results: dict[str, str] = field(init=False, default_factory=dict)

    def run(self) -> None:
        """Start all services and wait until they are ready. Raises StackError if a service ends or is late."""
        total_seconds = sum(service.start_seconds for service in self.services)
        wait_for("the stack to be ready", self.poll, seconds=total_seconds, interval=0.1)

    def poll(self) -> Observation[bool]:
        """Start the services whose requirements are ready, and check the services that were started."""
        for service in self.services:
            if service.name not in self.start_times and self.ready_services.issuperset(service.requires):
                self.control.start(service.name)
                self.start_times[service.name] = time.monotonic()
        self.check_alive(self.control.processes())
        for service in self.services:
            if service.name in self.start_times and service.name not in self.ready_services:
                self.check(service)
        pending_services = [service.name for service in self.services if service.name not in self.ready_services]
        results = [f"{name}: {self.check_results.get(name, 'not started')}" for name in pending_services]
        return Observation(None if pending_services else True, "; ".join(results))

    def check(self, service: Service) -> None:
        """Check whether a service is ready. Raises StackError if the service exceeds its time limit."""
        result = service.check()
        self.check_results[service.name] = result.text
        elapsed_seconds = time.monotonic() - self.start_times[service.name]
        if result.value is not None:
            self.ready_services.add(service.name)
            self.progress(f"{service.name} is ready after {elapsed_seconds:.1f} s")
        elif elapsed_seconds > service.start_seconds:
            problem = f"was not ready within {service.start_seconds:g} s; last check: {result.text}"
            raise self.start_error(service.name, problem)

    def check_alive(self, processes: dict[str, ProcessStatus]) -> None:
        """Raise StackError if a service ended, even if Supervisor has restarted the service."""
        for name in self.start_times:
            status = processes[name]
            restarted = status.pid and self.pids.setdefault(name, status.pid) != status.pid
            if restarted or status.state not in ALIVE_STATES:
                reason = exit_description(self.layout, name) or status.detail or f"state {status.state}"
                raise self.start_error(name, f"ended ({reason})")

    def start_error(self, name: str, problem: str) -> StackError:
        """Return an error for a service that failed to start. The message includes the end of the service's log."""
        lines = excerpt(self.layout.log(name), LOG_LINES) or ["(the log is empty)"]
        text = "\n".join(f"    {line}" for line in lines)
        message = redact(f"{name} {problem}\nend of its log:\n{text}", self.state.passwords())
        return StackError(message, f"see the complete log in {self.layout.log(name)}; the stack was stopped")
