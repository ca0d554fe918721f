"""A connector, a slot and a server, as operating commands find them."""

from __future__ import annotations

from typing import Any

from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import ActualConnector, seed, seed_offset
from outbox_kit.operations.lag import Positions

CONFIRMED = seed_offset("16/B374D848")["lsn"]
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), (), ("w:1", "w:2"))
STOPPED = ConnectorStatus("STOPPED", (), (), ("w:1",))
TRACE = "x.ConnectException: no\n\tat a\nCaused by: y.PSQLException: ERROR: why\n\tat b\n"
FAILED = ConnectorStatus("RUNNING", ("FAILED",), (TRACE,), ("w:1", "w:1"))


def connector(
    status: ConnectorStatus | None = RUNNING, position: int | None = CONFIRMED, **config: str
) -> ActualConnector:
    """A connector that stands at `position`."""
    offsets = [] if position is None else [{"partition": {"server": "library"}, "offset": seed(position)}]
    return ActualConnector({"transforms.outbox.source.epoch": "2", **config}, status, offsets)


def positions(connector: int | None = 1000, confirmed: int | None = 1000, server: int = 5000) -> Positions:
    """Positions in bytes; the slot keeps 100 bytes before what it confirmed."""
    restart = None if confirmed is None else confirmed - 100
    offsets: list[dict[str, Any]] = (
        [] if connector is None else [{"partition": {"server": "library"}, "offset": seed(connector)}]
    )
    return Positions(offsets, connector, confirmed, restart, server)
