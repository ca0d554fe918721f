"""Select ports for the services, which all listen on 127.0.0.1."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError

HOST = "127.0.0.1"
PORT_NAMES = ("postgres", "kafka", "controller", "registry", "connect")
# These ports are below the ephemeral ranges of Linux (32768-60999) and macOS (49152-65535). An outgoing connection
# could occupy a port in an ephemeral range before the service listens on it.
FIRST_CHOSEN_PORT, LAST_CHOSEN_PORT = 20000, 32000
MAX_ATTEMPTS = 200
MAX_PORT_NUMBER = 65535


def is_free(port: int) -> bool:
    """Return whether a service could currently listen on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The servers also set this option. It allows binding while connections of a stopped stack are in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(excluded_ports: Iterable[int]) -> int:
    """Return a port that is free and not in `excluded_ports`."""
    excluded_ports = set(excluded_ports)
    for _ in range(MAX_ATTEMPTS):
        port = FIRST_CHOSEN_PORT + secrets.randbelow(LAST_CHOSEN_PORT - FIRST_CHOSEN_PORT)
        if port not in excluded_ports and is_free(port):
            return port
    message = f"no free port between {FIRST_CHOSEN_PORT} and {LAST_CHOSEN_PORT} in {MAX_ATTEMPTS} attempts"
    raise StackError(message, "choose free ports with --port SERVICE=PORT")


def choose_ports(requested_ports: Mapping[str, int], previous_ports: Mapping[str, int]) -> dict[str, int]:
    """Return a port for every name. Prefer the requested port, then the previous port if it is free, then a free port.

    Raises ConfigurationError for an invalid request, and StackError if a requested port is in use.
    """
    validate_request(requested_ports)
    chosen_ports = dict(requested_ports)
    for name in PORT_NAMES:
        port = previous_ports.get(name)
        if name not in chosen_ports and port and port not in chosen_ports.values() and is_free(port):
            chosen_ports[name] = port
    for name in PORT_NAMES:
        if name not in chosen_ports:
            chosen_ports[name] = free_port(chosen_ports.values())
    return {name: chosen_ports[name] for name in PORT_NAMES}


def validate_request(requested_ports: Mapping[str, int]) -> None:
    """Raise an error for an unknown name, an invalid port number, a port requested twice, or a port in use."""
    for name, port in requested_ports.items():
        if name not in PORT_NAMES:
            raise ConfigurationError(f"unknown port name {name!r}", f"use one of: {', '.join(PORT_NAMES)}")
        if not 0 < port <= MAX_PORT_NUMBER:
            raise ConfigurationError(f"invalid port {port} for {name}", f"use a port from 1 to {MAX_PORT_NUMBER}")
        if list(requested_ports.values()).count(port) > 1:
            names = " and ".join(entry for entry in requested_ports if requested_ports[entry] == port)
            raise ConfigurationError(f"port {port} is requested for {names}", "request a different port for each")
        if not is_free(port):
            raise StackError(
                f"port {port} for {name} is in use", "stop the program that uses it, or choose another port"
            )
