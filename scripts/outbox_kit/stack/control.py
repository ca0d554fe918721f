"""Call Supervisor's XML-RPC interface, which listens on a unix socket."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xmlrpc.client import Fault, ProtocolError, ServerProxy, Transport

from outbox_kit.stack.errors import StackError

CALL_TIMEOUT_S = 10
NOT_RUNNING_FAULT = 70  # supervisor.xmlrpc.Faults.NOT_RUNNING


@dataclass(frozen=True)
class ProcessStatus:
    """Status of the process of one service."""

    name: str
    state: str
    """Supervisor's state in lower case (running, starting, backoff, fatal, exited, stopped), or `orphaned` if the
    process runs without supervisord."""
    pid: int | None
    seconds: int | None
    """Seconds since the process started, or None if the process is not running."""
    detail: str = ""
    """Reason that Supervisor reports for a process that is not running."""


class _Connection(http.client.HTTPConnection):
    """HTTP connection over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CALL_TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_TIMEOUT_S)
        try:
            self.sock.connect(str(self.path))
        except OSError:
            self.close()
            raise


class _Transport(Transport):
    """XML-RPC over a unix socket. The transport of supervisor is not used, because that package is optional."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - signature of the base class
        # The base class closes the connection.
        connection = _Connection(self.path)
        self._connection = (host, connection)
        return connection


class Control:
    """Client of the supervisord that listens on the socket `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - XML-RPC is untyped
        """Call a method of the `supervisor` namespace. Raises OSError if no response arrives, Fault if it fails."""
        with ServerProxy("http://localhost", transport=_Transport(self.path)) as proxy:
            try:
                return getattr(proxy.supervisor, method)(*arguments)
            except (http.client.HTTPException, ProtocolError) as error:
                raise ConnectionError(f"supervisor did not respond to {method}: {error}") from error

    def supervisor_pid(self) -> int | None:
        """Return supervisord's pid, or None if supervisord does not respond."""
        try:
            return cast(int, self.call("getPID"))
        except (OSError, Fault):
            return None

    def processes(self) -> dict[str, ProcessStatus]:
        try:
            process_infos = self.call("getAllProcessInfo")
        except (OSError, Fault) as error:
            raise StackError(f"supervisor does not respond ({error})", "run `outbox stack down`") from error
        return {process_info["name"]: _status(process_info) for process_info in process_infos}

    def start(self, name: str) -> None:
        """Ask Supervisor to start a process. Raises StackError if Supervisor rejects the request."""
        try:
            self.call("startProcess", name, False)
        except (OSError, Fault) as error:
            raise StackError(f"supervisor cannot start {name} ({error})") from error

    def stop(self, name: str) -> None:
        """Ask Supervisor to stop a process. Does nothing if the process is not running."""
        try:
            self.call("stopProcess", name, False)
        except Fault as fault:
            if fault.faultCode != NOT_RUNNING_FAULT:
                raise

    def shutdown(self) -> None:
        self.call("shutdown")


def _status(process_info: dict[str, Any]) -> ProcessStatus:
    pid = process_info["pid"] or None
    return ProcessStatus(
        name=process_info["name"],
        state=process_info["statename"].lower(),
        pid=pid,
        seconds=max(0, process_info["now"] - process_info["start"]) if pid else None,
        detail=process_info["spawnerr"],
    )
