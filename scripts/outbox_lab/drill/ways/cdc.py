"""Deploy ways of sending in which Debezium reads the WAL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from outbox_events.errors import OutboxError
from outbox_kit.connect import lifecycle
from outbox_lab.drill.senders.sender import SenderSettings
from outbox_lab.drill.ways.pipeline import PipelineWay
from outbox_lab.drill.ways.way import STACK_FAULTS, Deployed, Promise

MESSAGE_PREFIX = "drill"
SLOT_FAULTS = ("slot-invalidated", "promote-standby", "promote-with-slot")


class Cdc(PipelineWay):
    """Way in which the connector of outbox-kit reads an outbox table."""

    name = "cdc"
    description = "Outbox table, Debezium connector, at least once"
    promise = Promise()
    faults: ClassVar[tuple[str, ...]] = (
        "none",
        "kill-connect",
        "kill-writer",
        "pause-connect",
        *STACK_FAULTS,
        *SLOT_FAULTS,
        "restore-postgres",
    )
    exactly_once: ClassVar[bool] = False

    @contextmanager
    def deployed(self) -> Iterator[Deployed]:
        self.drill.set_exactly_once(enabled=self.exactly_once)
        with super().deployed() as deployed:
            yield deployed

    def state(self) -> str:
        try:
            status = self._deployment.connect.status(self._deployment.pipeline.connector.name)
        except OutboxError as error:
            return error.message
        return lifecycle.status_text(status)


class ExactlyOnceCdc(Cdc):
    """Way in which the connector reads an outbox table, and the worker enables exactly.once.source.support."""

    name = "cdc-exactly-once"
    description = "Outbox table, Debezium connector, exactly once"
    promise = Promise(no_duplicates=True)
    exactly_once = True


class MessageCdc(Cdc):
    """Way in which the connector reads logical decoding messages instead of an outbox table."""

    name = "cdc-messages"
    description = "Logical decoding messages without a table, Debezium connector, exactly once"
    promise = Promise(no_duplicates=True)
    # Messages exist only in the WAL, so they cannot be sent again after the slot is lost.
    lossy_faults = frozenset({"slot-invalidated", "promote-standby"})
    faults = tuple(name for name in Cdc.faults if name != "restore-postgres")
    exactly_once = True

    def sender(self) -> SenderSettings:
        return SenderSettings("messages", {"prefix": MESSAGE_PREFIX})

    def changes(self) -> dict[str, object]:
        source = {"message_prefix": MESSAGE_PREFIX, "publication": f"{self.cell}_p", "slot": f"{self.cell}_s"}
        return {"source": source, "connector": {"name": self.cell, "template": "outbox-postgres-messages"}}
