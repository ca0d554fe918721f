"""List all senders by name, and open a sender."""

from __future__ import annotations

from outbox_lab.drill.senders.outbox import MessageSender, OutboxSender
from outbox_lab.drill.senders.planted import PLANTED_SENDERS, Planted
from outbox_lab.drill.senders.producing import PRODUCING_SENDERS
from outbox_lab.drill.senders.sender import Sender, SenderSettings

SENDERS: dict[str, type[Sender]] = {
    "outbox": OutboxSender,
    "messages": MessageSender,
    **PRODUCING_SENDERS,
    **{name: sender for name, (sender, _) in PLANTED_SENDERS.items()},
    "planted-handlers": Planted,
}


def open_sender(settings: SenderSettings, name: str) -> Sender:
    """Open a sender for the writer that has this name."""
    return SENDERS[settings.name](settings.options, name)
