"""Client of Supervisor's XML-RPC interface, over its unix socket."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xmlrpc.client import Fault, ProtocolError, ServerProxy, Transport

from outbox_kit.errors import StackError

CALL_SECONDS = 10
NOT_RUNNING = 70  # supervisor.xmlrpc.Faults


@dataclass(frozen=True)
class ProcessStatus:
    """One service, as Supervisor reports it."""

    name: str
    state: str
    """Supervisor's state in lower case (running, starting, backoff, fatal, exited, stopped), or `orphaned`: the process
    runs without supervisord."""
    pid: int | None
    seconds: int | None
    """Seconds since the start of the process; None when it does not run."""
    detail: str = ""
    """Reason why the process does not run, as Supervisor reports it."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CALL_SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_SECONDS)
        try:
            self.sock.connect(str(self.path))
        except OSError:
            self.close()
            raise


class _Transport(Transport):
    """XML-RPC over a unix socket. Supervisor has such a transport, but its package is optional."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - signature of the base class
        # The base class closes the connection.
        connection = _Connection(self.path)
        self._connection = (host, connection)
        return connection


class Control:
    """A client of one supervisord."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - XML-RPC is untyped
        """Call a method of the `supervisor` namespace. Raises OSError if there is no response, Fault for an error."""
        with ServerProxy("http://localhost", transport=_Transport(self.path)) as proxy:
            try:
                return getattr(proxy.supervisor, method)(*arguments)
            except (http.client.HTTPException, ProtocolError) as error:
                raise ConnectionError(f"supervisor did not respond to {method}: {error}") from error

    def supervisor_pid(self) -> int | None:
        """Return supervisord's pid, None when it does not respond."""
        try:
            return cast(int, self.call("getPID"))
        except (OSError, Fault):
            return None

    def processes(self) -> dict[str, ProcessStatus]:
        try:
            listing = self.call("getAllProcessInfo")
        except (OSError, Fault) as error:
            raise StackError(f"supervisor does not respond ({error})", "run `outbox stack down`") from error
        return {info["name"]: _status(info) for info in listing}

    def start(self, name: str) -> None:
        """Request the start of a process. Raises StackError when Supervisor rejects the request."""
        try:
            self.call("startProcess", name, False)
        except (OSError, Fault) as error:
            raise StackError(f"supervisor cannot start {name} ({error})") from error

    def stop(self, name: str) -> None:
        """Request the stop of a process."""
        try:
            self.call("stopProcess", name, False)
        except Fault as fault:
            if fault.faultCode != NOT_RUNNING:
                raise

    def shutdown(self) -> None:
        self.call("shutdown")


def _status(info: dict[str, Any]) -> ProcessStatus:
    pid = info["pid"] or None
    return ProcessStatus(
        name=info["name"],
        state=info["statename"].lower(),
        pid=pid,
        seconds=max(0, info["now"] - info["start"]) if pid else None,
        detail=info["spawnerr"],
    )
