"""Deploy ways of sending and receiving with a planted mistake, for which the drill must report a broken promise."""

from __future__ import annotations

from typing import ClassVar

from outbox_lab.drill.receivers.handlers import PLANTED_HANDLERS
from outbox_lab.drill.senders.planted import PLANTED_SENDERS
from outbox_lab.drill.ways.producing import ProducingWay
from outbox_lab.drill.ways.way import Promise, Way


class PlantedWay(ProducingWay):
    """Base class. No fault is injected, because the mistake itself breaks the promise."""

    promise = Promise(no_loss=False, no_phantom=False, in_order=False)
    faults: ClassVar[tuple[str, ...]] = ("none",)


class PlantedHandlersWay(PlantedWay):
    """Way without a mistake in sending, whose receivers have handlers with mistakes."""

    name = "planted-handlers"
    description = "Dual write without a mistake, and receivers with one planted mistake in each handler"
    strategies = tuple(PLANTED_HANDLERS)


def _way(mistake: str) -> type[Way]:
    sender, finds = PLANTED_SENDERS[mistake]
    description = f"Planted mistake. {(sender.__doc__ or '').splitlines()[0].rstrip('.')}"
    members = {"name": mistake, "description": description, "finds": finds}
    return type(mistake, (PlantedWay,), members)


_ALL: tuple[type[Way], ...] = (*map(_way, PLANTED_SENDERS), PlantedHandlersWay)
PLANTED_WAYS = {way.name: way for way in _ALL}
