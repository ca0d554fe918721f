from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from outbox_kit.errors import ConfigurationError, StackError
from outbox_kit.stack.ports import HIGHEST, HOST, LOWEST, NAMES, choose_ports, free_port, is_free


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_assigns_a_port_to_every_service() -> None:
    chosen = choose_ports({}, {})
    assert tuple(chosen) == NAMES
    assert len(set(chosen.values())) == len(NAMES)


def test_free_ports_are_below_the_ephemeral_range() -> None:
    """Guards restarts: a port among the ephemeral ones may be an outgoing connection's by then."""
    assert all(LOWEST <= port < HIGHEST for port in choose_ports({}, {}).values())


def test_detects_a_busy_port(busy: int) -> None:
    assert not is_free(busy)


def test_uses_a_requested_port() -> None:
    port = free_port(())
    assert choose_ports({"connect": port}, {"connect": free_port((port,))})["connect"] == port


def test_rejects_a_requested_busy_port_by_service_and_number(busy: int) -> None:
    with pytest.raises(StackError, match=f"port {busy} for registry is in use") as caught:
        choose_ports({"registry": busy}, {})
    assert "another port" in caught.value.hint


def test_reuses_saved_ports() -> None:
    before = choose_ports({}, {})
    assert choose_ports({}, before) == before


def test_replaces_a_saved_busy_port(busy: int) -> None:
    before = choose_ports({}, {}) | {"kafka": busy}
    chosen = choose_ports({}, before)
    assert chosen["kafka"] != busy
    assert chosen | {"kafka": busy} == before


def test_saved_port_yields_to_a_request() -> None:
    before = choose_ports({}, {})
    chosen = choose_ports({"connect": before["kafka"]}, before)
    assert chosen["connect"] == before["kafka"]
    assert len(set(chosen.values())) == len(NAMES)


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
