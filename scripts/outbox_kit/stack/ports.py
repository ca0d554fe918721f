"""Chooses the ports of the parts, all on 127.0.0.1."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping

from outbox_kit.errors import ConfigurationError, StackError

HOST = "127.0.0.1"
NAMES = ("postgres", "kafka", "controller", "registry", "connect")
# Below the ranges that Linux (32768-60999) and macOS (49152-65535) take source ports from: a port chosen
# there could be taken by an outgoing connection, of a part even, before its part listens or restarts.
LOWEST, HIGHEST = 20000, 32000
ATTEMPTS = 200
LARGEST_PORT = 65535


def is_free(port: int) -> bool:
    """Tell whether a part could listen on a port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # What the servers do too: connections of a stopped stack in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(taken: Iterable[int]) -> int:
    """Return a port that is free and not in `taken`."""
    avoided = set(taken)
    for _ in range(ATTEMPTS):
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        if port not in avoided and is_free(port):
            return port
    message = f"no free port between {LOWEST} and {HIGHEST} in {ATTEMPTS} attempts"
    raise StackError(message, "name free ports with --port PART=NUMBER")


def choose_ports(requested: Mapping[str, int], remembered: Mapping[str, int]) -> dict[str, int]:
    """Return a port for every name: as requested, else as last time when still free, else a free one.

    Raises ConfigurationError for a request that makes no sense, StackError for one that cannot be met.
    """
    check_request(requested)
    chosen = dict(requested)
    for name in NAMES:
        before = remembered.get(name)
        if name not in chosen and before and before not in chosen.values() and is_free(before):
            chosen[name] = before
    for name in NAMES:
        if name not in chosen:
            chosen[name] = free_port(chosen.values())
    return {name: chosen[name] for name in NAMES}


def check_request(requested: Mapping[str, int]) -> None:
    """Refuse unknown names, numbers that are no ports, one port for two parts, and busy ports."""
    for name, port in requested.items():
        if name not in NAMES:
            message = f"no part has the port '{name}'"
            raise ConfigurationError(message, f"ports: {', '.join(NAMES)}")
        if not 0 < port <= LARGEST_PORT:
            message = f"{port} (for {name}) is no port"
            raise ConfigurationError(message, f"use 1 to {LARGEST_PORT}")
        if list(requested.values()).count(port) > 1:
            both = " and ".join(other for other in requested if requested[other] == port)
            message = f"port {port} is asked for {both}"
            raise ConfigurationError(message, "give each its own")
        if not is_free(port):
            message = f"port {port}, asked for {name}, is in use by another program"
            raise StackError(message, "stop that program, name another port, or leave it out to get a free one")
