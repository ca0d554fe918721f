"""Define the class Stack, which starts and stops the embedded stack and returns its status and logs."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from outbox_common.components.download import download
from outbox_common.components.folders import is_checkout
from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit import __version__
from outbox_kit.results import Reporter, silent
from outbox_kit.stack import logs
from outbox_kit.stack.control import Control, ProcessStatus
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.ports import choose_ports
from outbox_kit.stack.processes import find_processes
from outbox_kit.stack.services.catalog import SERVICES, needs_java, select_services
from outbox_kit.stack.services.java import find_java
from outbox_kit.stack.services.postgres_home import choose_home, postgres_user
from outbox_kit.stack.services.service import Context, Options
from outbox_kit.stack.shutdown import ignore_interrupts, stop_all
from outbox_kit.stack.startup import Startup, prepare
from outbox_kit.stack.state import PURGE_HINT, StackState, read_state, write_state
from outbox_kit.stack.supervisor import SUPERVISOR, launch


class Stack:
    """The PostgreSQL, Kafka, registry and Connect of one project. They run under one supervisord.

    The methods do not print. Long operations report their progress to `progress`.
    """

    def __init__(self, root: Path, options: Options | None = None) -> None:
        self.layout = Layout(root)
        self.options = options or Options()

    def up(
        self, progress: Reporter = silent, ports: Mapping[str, int] | None = None, services: Iterable[str] | None = None
    ) -> StackState:
        """Start all services, or `services` and their requirements, and return when every started service is ready.

        A service without an entry in `ports` uses its previous port if that port is free. Existing data is reused.
        If the start fails or is interrupted with Ctrl-C, all processes that were started are stopped.

        Raises StackError if the stack is already running, a port is in use, or a service ends or is not ready before
        its time limit. Raises ConfigurationError if Java is not found, or a service or port is unknown.
        """
        names = select_services(services)
        with self.locked():
            running_state = self.state()
            if running_state is not None:
                message = f"the stack is already running (supervisor pid {running_state.supervisor_pid})"
                raise StackError(message, "run `outbox stack down` first")
            java = find_java() if needs_java(names) else None
            external_home_existed = self.layout.external_postgres_home.exists()
            try:
                return self.start(names, java, ports or {}, progress)
            except BaseException as error:
                self.stop_after(error, progress)
                if not external_home_existed:  # a failed first start must not leave files outside
                    delete_folder(self.layout.external_postgres_home)
                if isinstance(error, OSError):
                    raise file_error(error) from error
                raise

    def start(
        self, names: tuple[str, ...], java: Path | None, ports: Mapping[str, int], progress: Reporter
    ) -> StackState:
        """Stop the remaining processes of a killed run, then start the services.

        Download the components first if outbox-kit was not installed from a checkout.
        """
        if not is_checkout():
            download([SERVICES[name].component or name for name in names], progress)
        self.layout.create()
        stop_all(self.layout, progress)
        state = self.next_state(ports)
        write_state(self.layout.state_file, state)
        context = Context(self.layout, state, self.options, java)
        selected_services = [SERVICES[name](context) for name in names]
        progress(f"preparing {', '.join(names)}")
        prepare(selected_services)
        logs.rotate(self.layout, (*names, SUPERVISOR))
        control = launch(self.layout, {service.name: service.program() for service in selected_services})
        progress(f"starting {', '.join(names)}")
        Startup(self.layout, state, selected_services, control, progress).run()
        running_state = state.model_copy(update={"services": names, "supervisor_pid": control.supervisor_pid()})
        write_state(self.layout.state_file, running_state)
        return running_state

    def stop_after(self, error: BaseException, progress: Reporter) -> None:
        """Stop the services of a failed start. An error during the stop must not hide the original error."""
        progress(f"stopping the services after {type(error).__name__}")
        with ignore_interrupts():
            try:
                self.stop(progress)
            except OutboxError as stop_error:
                progress(f"{stop_error.message} ({stop_error.hint})")

    def next_state(self, ports: Mapping[str, int]) -> StackState:
        """Return the state for the start. It reuses passwords and free ports of the last run, or contains new ones."""
        previous_state = read_state(self.layout.state_file)
        chosen_ports = choose_ports(ports, previous_state.ports if previous_state else {})
        user = postgres_user()
        home = choose_home(self.layout, user, previous_state.postgres_home if previous_state else None)
        if previous_state is None:
            if (home / "data").exists():
                message = f"{home / 'data'} contains a database, but "
                message += f"{self.layout.state_file} with its passwords does not exist"
                raise StackError(message, PURGE_HINT)
            return StackState(ports=chosen_ports, postgres_home=home, postgres_user=user)
        new_values = {"version": __version__, "ports": chosen_ports, "postgres_home": home, "postgres_user": user}
        return previous_state.stopped().model_copy(update=new_values)

    def down(self, progress: Reporter = silent, purge: bool = False) -> None:
        """Stop every process of this stack, including processes that a killed supervisor or `up` left running.

        The data is retained unless `purge` is set. Raises StackError if a process does not end.
        """
        with self.locked(), ignore_interrupts():
            self.stop(progress)
            if purge:
                self.refuse_foreign_folder()
                progress("deleting the stack's data")
                for folder in (self.layout.home, self.layout.external_postgres_home):
                    delete_folder(folder)
                if self.layout.socket.parent != self.layout.home:
                    delete_folder(self.layout.socket.parent)

    @property
    def has_data(self) -> bool:
        """Whether there are files that `down` would delete with `purge`."""
        return any(folder.exists() for folder in (self.layout.home, self.layout.external_postgres_home))

    def refuse_foreign_folder(self) -> None:
        """Raise StackError if the folder contains only files of other programs, for example in the wrong project."""
        home = self.layout.home
        created = (self.layout.state_file, self.layout.configuration, self.layout.secrets)
        if home.exists() and any(home.iterdir()) and not any(path.exists() for path in created):
            message = f"{home} does not contain any files of a stack, so nothing was deleted"
            raise StackError(message, "run the command in the folder of the stack, or delete this folder by hand")

    def stop(self, progress: Reporter) -> None:
        """Stop every process, and record in the state file that the stack is stopped."""
        stop_all(self.layout, progress)
        try:
            state = read_state(self.layout.state_file)
        except StackError:  # do not change an unusable file
            return
        if state is not None and state != state.stopped():
            write_state(self.layout.state_file, state.stopped())

    def state(self) -> StackState | None:
        """Return the state of the running stack, or None if the stack is not completely started."""
        pid = Control(self.layout.socket).supervisor_pid()
        if pid is None:
            return None
        state = read_state(self.layout.state_file)
        return state if state is not None and state.supervisor_pid == pid else None

    def status(self) -> list[ProcessStatus]:
        """Return one entry per service that runs or should run. The list is empty if the stack is down."""
        control = Control(self.layout.socket)
        if control.supervisor_pid() is not None:
            return list(control.processes().values())
        orphans = {process.service: process.pid for process in find_processes(self.layout) if not process.is_backend}
        detail = "its supervisor does not run; run `outbox stack down`"
        return [ProcessStatus(name, "orphaned", pid, None, detail) for name, pid in sorted(orphans.items())]

    def pid(self, name: str) -> int | None:
        """Return the pid of a service, or None if the service is not running."""
        self.check_name(name)
        return next((status.pid for status in self.status() if status.name == name), None)

    def logs(self, name: str, lines: int = 100) -> str:
        """Return the last lines of the log of a service or of `supervisor`, or '' if there is no log."""
        self.check_name(name, SUPERVISOR)
        return "\n".join(logs.tail(self.layout.log(name), lines))

    def check_name(self, name: str, *additional: str) -> None:
        names = (*SERVICES, *additional)
        if name not in names:
            raise ConfigurationError(f"unknown service: {name}", f"use one of: {', '.join(names)}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the stack's lock during the block. The kernel releases the lock when the process ends."""
        try:
            self.layout.lock_file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.layout.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise file_error(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            message = f"another `outbox stack up` or `down` is running for {self.layout.home}"
            raise StackError(message, "wait until that command ends, or interrupt it") from None
        try:
            yield
        finally:
            os.close(descriptor)


def file_error(error: OSError) -> StackError:
    """Return an error for a file that cannot be read, written or deleted."""
    message = f"{error.filename or 'a file of the stack'}: {error.strerror or error}"
    return StackError(message, "check the disk, and run the command as the user who last started the stack")


def delete_folder(folder: Path) -> None:
    """Delete a folder. Raises StackError if the folder cannot be deleted."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise file_error(error) from error
