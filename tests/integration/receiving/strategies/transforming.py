"""A service that consumes, transforms and produces, and what readers of its output see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.receiving.service import SECONDS, Service

from outbox_events import Event, Handlers, KafkaTransactions
from outbox_events.kafka.record import Record
from outbox_events.producing.deliveries import KafkaTransaction
from outbox_events.waiting import Observation, wait_for
from outbox_lab.drill.proxy import CHUNK_BYTES, Proxy

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
PARTITIONS = 3
END_TXN = (26).to_bytes(2, "big")
"""Number of the request that commits or aborts a transaction."""


def read(bootstrap: str, topic: str, isolation: str = COMMITTED) -> list[str]:
    """Return the event ids on a topic, after every transaction that is being completed has ended."""
    wait_for(f"the transactions on {topic}", lambda: ends_of_readers(bootstrap, topic), seconds=SECONDS)
    consumer = _consumer(bootstrap, isolation)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, at_end = list[str](), set[int]()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is not None:
            at_end.add(message.partition() or 0)
        else:
            found.append(dict(message.headers() or [])["event_id"].decode())  # type: ignore[union-attr]
    consumer.close()
    return found


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation}
    return Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})


def ends_of_readers(bootstrap: str, topic: str) -> Observation[bool]:
    """Compare the ends that both kinds of readers see. An open transaction is between these ends."""
    ends = []
    for isolation in (COMMITTED, UNCOMMITTED):
        consumer = _consumer(bootstrap, isolation)
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends.append([consumer.get_watermark_offsets(place, timeout=SECONDS)[1] for place in places])
        consumer.close()
    return Observation(ends[0] == ends[1] or None, f"{ends[0]} of {ends[1]}")


@dataclass
class TransformingService(Service):
    """Sends a record with the id of the event to `output`."""

    output: str = ""
    handlers: Handlers[Any] = field(default_factory=Handlers)

    def strategy(
        self,
        transactional_id: str = "",
        *,
        seconds: float = 10,
        create: Callable[[dict[str, Any]], Producer] = Producer,
        **settings: object,
    ) -> KafkaTransactions:
        name = transactional_id or f"{self.group}-0"
        merged = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "log_level": 0, **settings}
        return KafkaTransactions(merged, create=create, seconds=seconds)

    def settings(self, **changes: object) -> Mapping[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "group.id": self.group, "session.timeout.ms": 6000, **changes}

    def forward(self, event: Event, transaction: KafkaTransaction) -> None:
        transaction.send(Record(self.output, event.key, event.raw_value, (("event_id", event.event_id.encode()),)))

    def outputs(self, isolation: str = COMMITTED) -> list[str]:
        return read(self.bootstrap, self.output, isolation)

    def committed(self) -> int:
        """Return the sum of the group's committed offsets."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        places = consumer.committed([TopicPartition(self.topic, n) for n in range(PARTITIONS)], timeout=SECONDS)
        consumer.close()
        return sum(max(place.offset, 0) for place in places)


class InterruptedProducer(Producer):
    """Interrupts the process once, before or after a commit."""

    def __init__(self, settings: dict[str, Any], point: str, interrupts: list[str]) -> None:
        super().__init__(settings)
        self.point, self.interrupts = point, interrupts

    def commit_transaction(self, *arguments: float) -> None:
        self._interrupt("before commit")
        super().commit_transaction(*arguments)
        self._interrupt("after commit")

    def _interrupt(self, point: str) -> None:
        if point == self.point and not self.interrupts:
            self.interrupts.append(point)
            raise KeyboardInterrupt


class CuttingProxy(Proxy):
    """Proxy between a client and the broker that cuts the connections at the first end of a transaction.

    In responses, the broker's address is replaced with the proxy's, which has the same length. `reaches_broker`
    states whether the request is forwarded, so that only its response is lost. Connections are refused until `mend`.
    """

    def __init__(self, bootstrap: str, *, reaches_broker: bool) -> None:
        self._host, _, port = bootstrap.rpartition(":")
        super().__init__(int(port))
        self._reaches_broker = reaches_broker
        self._request = b""
        self.is_cut = False

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def mend(self) -> None:
        """Accept connections again."""
        self.is_cut = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
        else:
            await super()._accept(reader, writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_request = writer.get_extra_info("peername")[1] == self._target_port
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if is_request and chunk[4:6] == END_TXN and not self._request:
                    self._request = chunk[8:12]  # the response has the same correlation id
                    self.is_cut = True
                    if not self._reaches_broker:
                        break
                elif not is_request and self.is_cut and chunk[4:8] == self._request:
                    break
                writer.write(chunk if is_request else self._redirected(chunk))
                await writer.drain()
        if self.is_cut:
            await self._abort_all()
        writer.close()

    def _redirected(self, response: bytes) -> bytes:
        host = self._host.encode()
        return response.replace(host + self._target_port.to_bytes(4, "big"), host + self.port.to_bytes(4, "big"))


def new_service(bootstrap: str, dsn: str, create_topic: Callable[..., str]) -> TransformingService:
    return TransformingService(bootstrap, dsn, create_topic(), output=create_topic(f"out-{uuid4().hex[:8]}"))
