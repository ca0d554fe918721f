"""States of a connector, a slot and a server, and a pipeline with two aggregate types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.lag import Positions
from outbox_kit.pipeline import Backfill

NAME = "library-outbox"
CONFIRMED = 0x16B374D848
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), (), ("w:1", "w:2"))


def connector(position: int = CONFIRMED) -> ActualConnector:
    """Return a running connector with its offset at `position`."""
    offsets = [{"partition": {"server": "library"}, "offset": seed(position)}]
    return ActualConnector({"transforms.outbox.source.epoch": "2"}, RUNNING, offsets)


def positions(connector: int | None = 1000, confirmed: int | None = 1000, server: int = 5000) -> Positions:
    """Return positions as numbers. The slot retains 100 bytes of WAL before its confirmed LSN."""
    restart = None if confirmed is None else confirmed - 100
    offsets: list[dict[str, Any]] = (
        [] if connector is None else [{"partition": {"server": "library"}, "offset": seed(connector)}]
    )
    return Positions(offsets, connector, confirmed, restart, server)


def backfilled(deployment: Deployment, *names: str) -> Deployment:
    """Return the deployment with only the aggregate types `names`, which have a `backfill`.

    Without names, it has the types author and book, which do not have a `backfill`.
    """
    aggregates = {}
    for name in names or ("author", "book"):
        query = f"select id as aggregate_id, payload from library.{name}"
        table = Backfill(table=f"library.{name}", key=["id"], query=query) if names else None
        aggregates[name] = deployment.pipeline.aggregates[name].model_copy(update={"backfill": table})
    return replace(deployment, pipeline=deployment.pipeline.model_copy(update={"aggregates": aggregates}))
