"""Start, supervision and stop by supervisord, with small programs as services."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outbox_events.waiting import Observation, wait_for
from outbox_kit.results import silent
from outbox_kit.stack.control import Control
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import command_lines, find_processes, process_marker, terminate
from outbox_kit.stack.services.service import Program
from outbox_kit.stack.shutdown import stop_all
from outbox_kit.stack.startup import Startup
from outbox_kit.stack.state import StackState
from outbox_kit.stack.supervisor import launch

# The ready file is created after the signal handler is set. Before exec, the child has supervisord's command line.
RUN = "import pathlib, time; pathlib.Path({ready!r}).touch(); print('up', flush=True); time.sleep(600)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@dataclass
class SmallService:
    """A service that runs a few lines of Python."""

    layout: Layout
    name: str
    code: str = "import time"
    requires: tuple[str, ...] = ()
    start_seconds: float = 20
    is_healthy: Callable[[], bool] = field(default=lambda: True)

    def prepare(self) -> None:
        """Do nothing, because there is nothing to prepare."""

    @property
    def ready(self) -> Path:
        return self.layout.root / f"{self.name}.ready"

    def program(self) -> Program:
        code = f"{self.code}; {RUN.format(ready=str(self.ready))}"
        return Program((sys.executable, "-c", code, process_marker(self.layout, self.name)), stop_seconds=1)

    def check(self) -> Observation[bool]:
        return Observation(True if self.ready.exists() and self.is_healthy() else None, "no response")


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    layout = Layout(tmp_path)
    layout.create()
    yield layout
    stop_all(layout, silent)


@pytest.fixture
def state(tmp_path: Path) -> StackState:
    return StackState(ports={"postgres": 1}, postgres_home=tmp_path)


def start(layout: Layout, state: StackState, *services: SmallService) -> Control:
    control = launch(layout, {service.name: service.program() for service in services})
    Startup(layout, state, list(services), control, silent).run()
    return control


def is_running(pid: int) -> bool:
    """Return whether a process runs, regardless of its marker. A zombie process does not count."""
    return bool(command_lines().get(pid))


def test_service_waits_for_its_requirements(layout: Layout, state: StackState) -> None:
    control = Control(layout.socket)
    observed_states: list[str] = []

    def kafka_is_healthy() -> bool:
        observed_states.append(control.processes()["connect"].state)
        return len(observed_states) > 2

    kafka = SmallService(layout, "kafka", is_healthy=kafka_is_healthy)
    start(layout, state, kafka, SmallService(layout, "connect", requires=("kafka",)))
    assert observed_states == ["stopped"] * 3
    assert control.processes()["connect"].pid


def test_reports_an_exited_service_with_status_and_log(layout: Layout, state: StackState) -> None:
    code = f"print('no disk left for {state.admin_password}', flush=True); raise SystemExit(3)"
    broken = SmallService(layout, "kafka", code, is_healthy=lambda: False)
    with pytest.raises(StackError) as caught:
        start(layout, state, broken, SmallService(layout, "postgres"))
    assert "kafka ended (exit status 3)" in caught.value.message
    assert "no disk left for ***" in caught.value.message
    assert "kafka.log" in caught.value.hint


def test_reports_a_late_exit_despite_a_restart(layout: Layout, state: StackState) -> None:
    """A service that ends and is restarted repeatedly must not be reported as a slow start."""
    late_exit = "import time; time.sleep(2.5); raise SystemExit(4)"
    with pytest.raises(StackError, match=r"kafka ended \(exit status 4\)"):
        start(layout, state, SmallService(layout, "kafka", late_exit, is_healthy=lambda: False))


def test_reports_a_service_that_exits_during_its_health_check(layout: Layout, state: StackState) -> None:
    short = SmallService(layout, "kafka", "import threading, os; threading.Timer(0.5, os._exit, (0,)).start()")
    slow = SmallService(layout, "postgres", is_healthy=lambda: False)
    with pytest.raises(StackError, match="kafka ended"):
        start(layout, state, short, slow)


def test_reports_an_unresponsive_service_after_its_timeout(layout: Layout, state: StackState) -> None:
    unresponsive = SmallService(layout, "kafka", start_seconds=1, is_healthy=lambda: False)
    with pytest.raises(StackError, match=r"kafka .* 1 s; last check: no response"):
        start(layout, state, unresponsive, SmallService(layout, "postgres"))


def test_stop_leaves_no_processes(layout: Layout, state: StackState) -> None:
    control = start(layout, state, SmallService(layout, "kafka"), SmallService(layout, "connect", IGNORES_SIGTERM))
    pids = [status.pid for status in control.processes().values()] + [control.supervisor_pid()]
    assert {process.service for process in find_processes(layout)} == {"kafka", "connect", "supervisor"}
    stop_all(layout, silent)
    assert find_processes(layout) == []
    assert not [pid for pid in pids if pid and is_running(pid)]
    assert not layout.socket.exists()


def test_ends_processes_of_a_killed_supervisor(layout: Layout, state: StackState) -> None:
    control = start(layout, state, SmallService(layout, "kafka"))
    kafka, supervisor = control.processes()["kafka"].pid, control.supervisor_pid()
    assert kafka is not None
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    wait_for(
        "supervisord to end",
        lambda: Observation(None if control.supervisor_pid() else True, "running"),
        seconds=10,
        interval=0.05,
    )
    assert is_running(kafka)
    stop_all(layout, silent)
    assert not is_running(kafka)


def test_ends_an_unresponsive_supervisor(layout: Layout, state: StackState, monkeypatch: pytest.MonkeyPatch) -> None:
    control = start(layout, state, SmallService(layout, "kafka"))
    supervisor = control.supervisor_pid()
    assert supervisor is not None
    monkeypatch.setattr("outbox_kit.stack.control.CALL_TIMEOUT_S", 0.5)
    os.kill(supervisor, signal.SIGSTOP)
    stop_all(layout, silent)
    assert find_processes(layout) == []


def test_kills_processes_that_ignore_the_signal(layout: Layout, state: StackState) -> None:
    control = start(layout, state, SmallService(layout, "connect", IGNORES_SIGTERM))
    supervisor = control.supervisor_pid()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    terminate(layout, ("connect", "supervisor"), seconds=0.5)
    assert find_processes(layout) == []


def test_supervisor_restarts_a_killed_service(layout: Layout, state: StackState) -> None:
    control = start(layout, state, SmallService(layout, "connect"))
    before = control.processes()["connect"]
    assert before.pid is not None
    time.sleep(2.2)  # longer than `startsecs`, because an earlier end would count as a failed start
    os.kill(before.pid, signal.SIGKILL)

    def poll() -> Observation[int]:
        now = control.processes()["connect"]
        return Observation(now.pid if now.pid != before.pid else None, now.state)

    assert wait_for("the new process", poll, seconds=10, interval=0.1)


def test_ignores_processes_of_another_project(layout: Layout, state: StackState, tmp_path: Path) -> None:
    start(layout, state, SmallService(layout, "kafka"))
    assert find_processes(Layout(tmp_path / "another")) == []


def test_reports_not_running_without_processes(layout: Layout) -> None:
    assert Control(layout.socket).supervisor_pid() is None
    with pytest.raises(StackError, match="supervisor does not respond"):
        Control(layout.socket).processes()
