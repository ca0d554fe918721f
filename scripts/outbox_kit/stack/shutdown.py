"""Shut down the stack, including processes that a killed supervisord or `up` left running."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from xmlrpc.client import Fault

from outbox_events.errors import OutboxError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.results import Reporter
from outbox_kit.stack.control import Control
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import find_processes, terminate, wait_until_ended
from outbox_kit.stack.services.catalog import STOP_ORDER
from outbox_kit.stack.supervisor import SUPERVISOR

STOP_SECONDS = 45  # greater than the stop_seconds of every service
SIGNAL_SECONDS = 15


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM during the block, because an interrupted shutdown would leave processes running.

    In threads other than the main thread, this has no effect, because only the main thread can set signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def stop_all(layout: Layout, progress: Reporter) -> None:
    """Stop every process of this stack. Raises StackError if a process does not end."""
    control = Control(layout.socket)
    if control.supervisor_pid() is not None:
        stop_through_supervisor(layout, control, progress)
    processes = find_processes(layout)
    if processes:
        progress(f"sending signals to {', '.join(sorted({process.service for process in processes}))}")
        stop_by_signal(layout)
    layout.socket.unlink(missing_ok=True)
    layout.supervisor_pid_file.unlink(missing_ok=True)


def stop_through_supervisor(layout: Layout, control: Control, progress: Reporter) -> None:
    """Stop the services in order, then supervisord. `stop_by_signal` handles processes that do not stop."""
    try:
        for names in STOP_ORDER:
            stop_group(control, names, progress)
        control.shutdown()
        wait_until_ended(layout, (SUPERVISOR,), SIGNAL_SECONDS)
    except (OSError, Fault, OutboxError) as error:
        progress(f"supervisor did not stop every service: {error}")


def stop_group(control: Control, names: tuple[str, ...], progress: Reporter) -> None:
    """Stop several services at the same time, and wait until they have stopped."""
    running_services = [name for name, status in control.processes().items() if name in names and status.pid]
    if not running_services:
        return
    progress(f"stopping {', '.join(running_services)}")
    for name in running_services:
        control.stop(name)

    def poll() -> Observation[bool]:
        processes = control.processes()
        still_running = [name for name in running_services if processes[name].pid]
        return Observation(None if still_running else True, f"{', '.join(still_running)} still running")

    wait_for(f"{', '.join(running_services)} to stop", poll, seconds=STOP_SECONDS, interval=0.1)


def stop_by_signal(layout: Layout) -> None:
    """Terminate the remaining processes: an unresponsive supervisord, or services whose supervisord was killed."""
    try:
        terminate(layout, (SUPERVISOR,), seconds=5)  # supervisord ends first: it would restart the services
        for names in (*STOP_ORDER, ("format",)):
            terminate(layout, names, seconds=SIGNAL_SECONDS)
    except (WaitTimeoutError, PermissionError) as error:
        remaining = ", ".join(f"{process.service} (pid {process.pid})" for process in find_processes(layout))
        message = f"these processes of the stack did not end: {remaining}"
        raise StackError(message, "kill them as the user who started the stack") from error
