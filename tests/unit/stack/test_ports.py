from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.ports import (
    FIRST_CHOSEN_PORT,
    HOST,
    LAST_CHOSEN_PORT,
    PORT_NAMES,
    choose_ports,
    free_port,
    is_free,
)


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_assigns_a_port_to_every_service() -> None:
    chosen = choose_ports({}, {})
    assert tuple(chosen) == PORT_NAMES
    assert len(set(chosen.values())) == len(PORT_NAMES)


def test_free_ports_are_below_the_ephemeral_range() -> None:
    """A port in the ephemeral range could be in use by an outgoing connection at the next start."""
    assert all(FIRST_CHOSEN_PORT <= port < LAST_CHOSEN_PORT for port in choose_ports({}, {}).values())


def test_detects_a_busy_port(busy_port: int) -> None:
    assert not is_free(busy_port)


def test_uses_a_requested_port() -> None:
    port = free_port(())
    assert choose_ports({"connect": port}, {"connect": free_port((port,))})["connect"] == port


def test_rejects_a_requested_busy_port_by_service_and_number(busy_port: int) -> None:
    with pytest.raises(StackError, match=f"port {busy_port} for registry") as caught:
        choose_ports({"registry": busy_port}, {})
    assert "another port" in caught.value.hint


def test_reuses_saved_ports() -> None:
    previous = choose_ports({}, {})
    assert choose_ports({}, previous) == previous


def test_replaces_a_saved_busy_port(busy_port: int) -> None:
    previous = choose_ports({}, {}) | {"kafka": busy_port}
    chosen = choose_ports({}, previous)
    assert chosen["kafka"] != busy_port
    assert chosen | {"kafka": busy_port} == previous


def test_requested_port_replaces_a_saved_port_of_another_service() -> None:
    previous = choose_ports({}, {})
    chosen = choose_ports({"connect": previous["kafka"]}, previous)
    assert chosen["connect"] == previous["kafka"]
    assert len(set(chosen.values())) == len(PORT_NAMES)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"zookeeper": 2181}, "unknown port name 'zookeeper'"),
        ({"kafka": 0}, "invalid port 0 for kafka"),
        ({"kafka": 65536}, "invalid port 65536"),
        ({"kafka": 29092, "connect": 29092}, "29092 is requested for kafka and connect"),
    ],
)
def test_rejects_invalid_requests(request_: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        choose_ports(request_, {})
