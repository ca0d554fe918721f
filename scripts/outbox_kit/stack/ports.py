"""Selection of the services' ports, all on 127.0.0.1."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping

from outbox_kit.errors import ConfigurationError, StackError

HOST = "127.0.0.1"
PORT_NAMES = ("postgres", "kafka", "controller", "registry", "connect")
# Below the ephemeral ranges of Linux (32768-60999) and macOS (49152-65535), because an outgoing connection could use
# a port of these ranges before the service listens.
LOWEST_PORT, HIGHEST_PORT = 20000, 32000
ATTEMPTS = 200
LARGEST_PORT = 65535


def is_free(port: int) -> bool:
    """Return whether a service could listen on a port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The servers set this option too: connections of a stopped stack in TIME_WAIT do not occupy the port then.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(excluded: Iterable[int]) -> int:
    """Return a port that is free and not in `excluded`."""
    excluded = set(excluded)
    for _ in range(ATTEMPTS):
        port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
        if port not in excluded and is_free(port):
            return port
    message = f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} in {ATTEMPTS} attempts"
    raise StackError(message, "choose free ports with --port SERVICE=PORT")


def choose_ports(requested: Mapping[str, int], previous: Mapping[str, int]) -> dict[str, int]:
    """Return a port for every name: the requested one, else the previous one if it is free, else a free one.

    Raises ConfigurationError for an invalid request, StackError for a port in use.
    """
    validate_request(requested)
    chosen = dict(requested)
    for name in PORT_NAMES:
        port = previous.get(name)
        if name not in chosen and port and port not in chosen.values() and is_free(port):
            chosen[name] = port
    for name in PORT_NAMES:
        if name not in chosen:
            chosen[name] = free_port(chosen.values())
    return {name: chosen[name] for name in PORT_NAMES}


def validate_request(requested: Mapping[str, int]) -> None:
    """Reject unknown names, invalid numbers, one port for two services, and ports in use."""
    for name, port in requested.items():
        if name not in PORT_NAMES:
            raise ConfigurationError(f"unknown port name {name!r}", f"names: {', '.join(PORT_NAMES)}")
        if not 0 < port <= LARGEST_PORT:
            raise ConfigurationError(f"invalid port {port} for {name}", f"use 1 to {LARGEST_PORT}")
        if list(requested.values()).count(port) > 1:
            names = " and ".join(entry for entry in requested if requested[entry] == port)
            raise ConfigurationError(f"port {port} is requested for {names}", "choose different ports")
        if not is_free(port):
            raise StackError(
                f"port {port} for {name} is in use", "stop the program that uses it, or choose another port"
            )
