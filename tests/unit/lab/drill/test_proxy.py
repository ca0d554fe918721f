"""The TCP proxy, between real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from outbox_lab.drill.proxy import Proxy

TIMEOUT_S = 10


@contextmanager
def echo_server() -> Iterator[int]:
    """Run a server that returns what it receives; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1024):
                connection.sendall(data)
        except OSError:
            return


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with echo_server() as port, Proxy(port) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT_S)


def test_forwards_both_directions(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(1024) == b"hello"


def test_reset_connections_can_be_opened_again(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"hello")
        client.recv(1024)
        proxy.reset_connections()
        with pytest.raises(ConnectionResetError):
            client.recv(1024)
    with connect(proxy) as client:
        client.sendall(b"again")
        assert client.recv(1024) == b"again"


def test_a_delay_applies_to_each_direction(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.set_delay(0.1)
        started = time.monotonic()
        client.sendall(b"hello")
        client.recv(1024)
        assert time.monotonic() - started >= 0.2
