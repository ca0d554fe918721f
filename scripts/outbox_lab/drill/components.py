"""Kill, pause and restart the components that a fault can hit: services of the stack, writers and relays."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Protocol, Self, TypeVar

import msgspec

from outbox_events.errors import OutboxError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import Stack
from outbox_kit.stack.control import Control
from outbox_kit.stack.processes import find_processes, send_signal

STOP_TIMEOUT_S = 30
RESTART_INTERVAL_S = 1.0
POLL_S = 0.1
READY_TIMEOUT_S = 60
# Must be longer than the stop_seconds of any service.
SERVICE_STOP_S = 45
STOPPED_STATES = ("stopped", "fatal")
Settings = TypeVar("Settings")


class Component(Protocol):
    """A component that a fault can kill, pause, resume or restart."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the component."""

    def restart(self) -> None:
        """Stop the component gracefully, and start it again."""


class ServiceComponent:
    """A service of the embedded stack. If the service is killed, Supervisor restarts it."""

    def __init__(self, stack: Stack, service: str) -> None:
        self._stack = stack
        self._service = service
        self._control = Control(stack.layout.socket)

    def signal(self, number: signal.Signals) -> None:
        processes = find_processes(self._stack.layout, (self._service,))
        if not processes:
            raise OutboxError(f"no process of {self._service} is running", "run `outbox stack status`")
        send_signal(processes, number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def start(self) -> None:
        """Request the start of the stopped service."""
        self._control.start(self._service)

    def stop(self) -> None:
        """Stop the service gracefully, even if Supervisor is restarting it repeatedly."""

        def poll() -> Observation[bool]:
            self._control.stop(self._service)
            state = self._control.processes()[self._service].state
            return Observation(state in STOPPED_STATES or None, f"state {state}")

        wait_for(f"{self._service} to stop", poll, seconds=SERVICE_STOP_S, interval=0.1)


class ProcessComponent:
    """A process that is restarted whenever it ends, until `stop` is called or the `with` block ends."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path, *, ready: bytes = b"") -> None:
        """Start the command. It logs the text `ready` when its work begins, and `signal` waits for this text."""
        self._command = list(command)
        self._ready = ready
        self._folder = folder
        self._log = log
        self.was_killed = False
        """Whether the command was still running STOP_TIMEOUT_S after SIGTERM."""
        self._stopped = Flag()
        self._process = self._launch()
        self._thread = Thread(target=self._keep_running, name="restart", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def signal(self, number: signal.Signals) -> None:
        """Wait until the command is ready, and send it a signal. Raises WaitTimeoutError after READY_TIMEOUT_S."""
        wait_for(f"{self._log.stem} to be ready", self._check_ready, seconds=READY_TIMEOUT_S, interval=0.05)
        self.signal_now(number)

    def signal_now(self, number: int) -> None:
        """Send a signal, whether the command is ready or not."""
        self._process.send_signal(number)

    def is_ready(self) -> bool:
        """Return whether the command is running and has logged the text `ready` since it was last started."""
        return self._check_ready().value is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process, negative if a signal ended it; None while it is running."""
        return self._process.poll()

    def has_logged(self, text: bytes) -> bool:
        """Return whether the command is running and has logged a text since it was last started."""
        if self.exit_code is not None:
            return False
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return text in log.read()

    def _check_ready(self) -> Observation[bool]:
        text = "running, but not ready" if self.exit_code is None else f"exit code {self.exit_code}"
        return Observation(self.has_logged(self._ready) or None, text)

    def restart(self) -> None:
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the command with SIGTERM, or with SIGKILL if it is still running after STOP_TIMEOUT_S."""
        self._stopped.set()
        self._thread.join(STOP_TIMEOUT_S)
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.was_killed = True
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            return subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _keep_running(self) -> None:
        while not self._stopped.wait(POLL_S):
            if self._process.poll() is not None and not self._stopped.wait(RESTART_INTERVAL_S):
                self._process = self._launch()


def stop_all(components: Sequence[ProcessComponent]) -> None:
    """Stop components at the same time."""
    with ThreadPoolExecutor(max(1, len(components))) as pool:
        list(pool.map(ProcessComponent.stop, components))


def start_module(module: str, settings: object, folder: Path, log: Path, *, ready: bytes = b"") -> ProcessComponent:
    """Write `settings` to a file next to the log, and start a module, which reads this file with `read_settings`."""
    settings_file = log.with_suffix(".json")
    settings_file.write_bytes(msgspec.json.encode(settings))
    return ProcessComponent([sys.executable, "-m", module, str(settings_file)], folder, log, ready=ready)


def read_settings(kind: type[Settings]) -> Settings:
    """Return the settings of this process, and configure logging to stderr with timestamps."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    return msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=kind)


def flag_of_termination() -> Flag:
    """Return a flag. From now on, SIGTERM and SIGINT set this flag and no longer end the process.

    A thread waits for the signals. A handler would run in the main thread, but the kernel can deliver a signal to
    another thread, which does not wake a main thread that waits for the end of its threads.
    """
    stop, signals = Flag(), {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # also in all threads that are started later

    def wait() -> None:
        signal.sigwait(signals)
        stop.set()

    Thread(target=wait, name="termination", daemon=True).start()
    return stop
