"""Consume, transform, produce: what readers of the output see after failures, crashes and fencing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event as StopEvent

import pytest
from confluent_kafka import KafkaException, Producer
from tests.integration.receiving.service import SECONDS, run_until
from tests.integration.receiving.strategies.transforming import (
    UNCOMMITTED,
    CuttingProxy,
    InterruptedProducer,
    TransformingService,
    ends_of_readers,
    new_service,
    read,
)

from outbox_events import DeadLetterTopic, Event, KafkaTransactions, Receiver, ReceiverStoppedError, Retries, recoverers
from outbox_events.errors import ConfigurationError
from outbox_events.kafka.record import Record
from outbox_events.limited_calls import ClientStuckError
from outbox_events.producing.deliveries import KafkaTransaction
from outbox_events.receiving.strategies import kafka_transactions
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import Stack
from outbox_lab.drill.components import ProcessComponent, ServiceComponent
from outbox_lab.drill.faults.injection import kill

CHILD = Path(__file__).with_name("transforming_process.py")
REPOSITORY = Path(__file__).parents[4]
FAST = Retries(attempts=1, first_delay_s=0.05, jitter=0)
IDS = [str(number) for number in range(30)]


@pytest.fixture
def service(bootstrap: str, create_topic: Callable[..., str]) -> TransformingService:
    service = new_service(bootstrap, "", create_topic)
    service.handlers.otherwise(service.forward)
    return service


def send(service: TransformingService, ids: list[str] = IDS) -> None:
    service.send(*((f"k{number}", event_id) for number, event_id in enumerate(ids)))


def run_to_end(service: TransformingService, receiver: Receiver[KafkaTransaction], count: int = len(IDS)) -> None:
    run_until(receiver, f"{count} committed offsets", lambda: service.committed() == count)


def seen(receiver: Receiver[KafkaTransaction]) -> int:
    return receiver.counters.handled + receiver.counters.duplicates


def in_order(ids: list[str]) -> list[str]:
    return sorted(ids, key=int)


def test_each_event_has_one_output(service: TransformingService) -> None:
    send(service)
    with service.receiver(service.strategy()) as receiver:
        run_to_end(service, receiver)
        assert receiver.counters.handled == len(IDS)
    assert in_order(service.outputs()) == IDS


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_handler_that_ends_the_transaction_stops_the_receiver(
    bootstrap: str, create_topic: Callable[..., str], end: str
) -> None:
    service, is_broken = new_service(bootstrap, "", create_topic), True

    @service.handlers.otherwise
    def forward(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        if is_broken and event.event_id == "17":
            getattr(transaction, end)()

    send(service)
    with service.receiver(service.strategy(), recoverer=recoverers.log_and_continue) as receiver:
        with pytest.raises(ReceiverStoppedError, match="nothing was committed"):
            run_until(receiver, "an error", lambda: False)
        is_broken = False
        run_to_end(service, receiver)
    assert in_order(service.outputs()) == IDS


def test_requires_offsets_in_the_transaction(service: TransformingService) -> None:
    for name, value in {"enable.auto.commit": True, "isolation.level": UNCOMMITTED}.items():
        with pytest.raises(ConfigurationError, match=name):
            service.receiver(service.strategy(), settings={name: value})
    with pytest.raises(ConfigurationError, match=r"transactional\.id"):
        KafkaTransactions({"bootstrap.servers": service.bootstrap})


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("point", ["between send and commit", "before commit", "after commit"])
def test_an_interrupt_loses_and_repeats_no_output(
    bootstrap: str, create_topic: Callable[..., str], point: str, restarts: bool
) -> None:
    service = new_service(bootstrap, "", create_topic)
    interrupts: list[str] = []

    @service.handlers.otherwise
    def forward(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        if point.startswith("between") and event.event_id == "17" and not interrupts:
            transaction.flush()
            interrupts.append(point)
            raise KeyboardInterrupt

    def strategy() -> KafkaTransactions:
        return service.strategy(create=lambda settings: InterruptedProducer(settings, point, interrupts))

    send(service)
    receiver = service.receiver(strategy(), batch_size=10)
    with pytest.raises(KeyboardInterrupt):
        receiver.run(StopEvent(), poll_s=0.1)
    if restarts:
        receiver.close()
        receiver = service.receiver(strategy(), batch_size=10)
    with receiver:
        run_to_end(service, receiver)
        if not restarts:
            run_until(receiver, "every event", lambda: seen(receiver) >= len(IDS))
            assert bool(receiver.counters.duplicates) == (point == "after commit")
    assert in_order(service.outputs()) == IDS
    is_repeated = len(service.outputs(UNCOMMITTED)) > len(IDS)
    assert is_repeated == (point != "after commit")


def test_a_killed_process_loses_and_repeats_no_output(service: TransformingService) -> None:
    send(service)
    command = [sys.executable, str(CHILD), service.bootstrap, service.topic, service.output, service.group, "17"]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "in transaction\n"
        finally:
            child.kill()
    with service.receiver(service.strategy()) as receiver:
        run_to_end(service, receiver)
    assert in_order(service.outputs()) == IDS
    aborted = len(service.outputs(UNCOMMITTED)) - len(IDS)
    assert 0 < aborted <= 10


def test_an_error_between_sends_withdraws_all_of_them(bootstrap: str, create_topic: Callable[..., str]) -> None:
    service = new_service(bootstrap, "", create_topic)

    @service.handlers.otherwise
    def forward_three_times(event: Event, transaction: KafkaTransaction) -> None:
        for number in range(3):
            service.forward(event, transaction)
            if event.event_id == "bad" and number == 1:
                transaction.flush()
                raise ValueError("the third record cannot be made")

    service.send(("a", "bad"), ("a", "good"), partition=0)
    options = {"retries": FAST, "recoverer": recoverers.log_and_continue, "batch_size": 1}
    with service.receiver(service.strategy(), **options) as receiver:
        run_to_end(service, receiver, 2)
        assert receiver.counters.recovered == 1
    assert service.outputs() == ["good"] * 3
    assert service.outputs(UNCOMMITTED) == ["bad"] * 2 + ["good"] * 3


def test_a_record_that_is_too_large_does_not_block_its_partition(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    service = new_service(bootstrap, "", create_topic)

    @service.handlers.otherwise
    def enlarge(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        if event.event_id == "big":
            transaction.send(Record(service.output, event.key, bytes(2_000_000)))

    service.send(("a", "big"), ("a", "small"), partition=0)
    options = {"retries": FAST, "recoverer": recoverers.log_and_continue}
    with service.receiver(service.strategy(), **options) as receiver:
        run_to_end(service, receiver, 2)
        assert receiver.counters.recovered == 1
    assert service.outputs() == ["small"]


@pytest.mark.parametrize("config", [{"max.message.bytes": "2000"}, {"cleanup.policy": "compact"}])
@pytest.mark.parametrize("sends_more", [False, True])
def test_an_event_whose_output_the_broker_rejects_becomes_a_dead_letter(
    bootstrap: str, create_topic: Callable[..., str], config: dict[str, str], sends_more: bool
) -> None:
    service = new_service(bootstrap, "", create_topic)
    dead_letters, strict = create_topic(f"{service.group}.dead-letter"), create_topic(**config)

    @service.handlers.otherwise
    def send_invalid(event: Event, transaction: KafkaTransaction) -> None:
        if event.event_id == "bad":
            transaction.send(Record(strict, None, bytes(5000)))
            while sends_more:  # until the producer knows that the transaction has failed
                service.forward(event, transaction)
        service.forward(event, transaction)

    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    recoverer = DeadLetterTopic(Producer({"bootstrap.servers": bootstrap}), dead_letters)
    with service.receiver(service.strategy(), retries=FAST, recoverer=recoverer) as receiver:
        run_to_end(service, receiver, 3)
        assert receiver.counters.recovered == 1
    assert service.outputs() == ["1", "2"]
    assert read(bootstrap, dead_letters) == ["bad"]


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_the_dead_letter_and_the_offset_are_one_transaction(
    bootstrap: str, create_topic: Callable[..., str], point: str
) -> None:
    service = new_service(bootstrap, "", create_topic)
    dead_letters = create_topic(f"{service.group}.dead-letter")

    @service.handlers.otherwise
    def fail(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        raise ValueError("poison")

    service.send(("a", "poison"))
    interrupts: list[str] = []
    strategy = service.strategy(create=lambda settings: InterruptedProducer(settings, point, interrupts))
    recoverer = DeadLetterTopic(Producer({"bootstrap.servers": bootstrap}), dead_letters)
    with service.receiver(strategy, retries=FAST, recoverer=recoverer) as receiver:
        with pytest.raises(KeyboardInterrupt):
            receiver.run(StopEvent(), poll_s=0.1)
        is_committed = point == "after commit"
        assert (read(bootstrap, dead_letters), service.committed()) == ((["poison"], 1) if is_committed else ([], 0))
        received = receiver.counters.received
        run_until(receiver, "the event again", lambda: receiver.counters.received > received)
        run_to_end(service, receiver, 1)
    assert read(bootstrap, dead_letters) == ["poison"]
    assert service.outputs() == []


def test_a_second_process_with_the_same_transactional_id_fences_the_first(service: TransformingService) -> None:
    send(service)
    with service.receiver(service.strategy()) as first:
        run_to_end(service, first)
        with service.receiver(service.strategy()) as second:
            for partition in range(3):
                service.send(("a", str(len(IDS) + partition)), partition=partition)
            for _ in range(2):  # it does not fence the second producer when it is called again
                with pytest.raises(ReceiverStoppedError):
                    run_until(first, "an error", lambda: False)
            first.close()
            run_to_end(service, second, len(IDS) + 3)
    assert in_order(service.outputs()) == [*IDS, "30", "31", "32"]


def test_a_consumer_that_lost_its_partitions_cannot_commit(bootstrap: str, create_topic: Callable[..., str]) -> None:
    service = new_service(bootstrap, "", create_topic)
    other = TransformingService(bootstrap, "", service.topic, service.group, output=service.output)
    other.handlers.otherwise(other.forward)
    calls: list[str] = []

    @service.handlers.otherwise
    def be_slow(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        calls.append(event.event_id)
        if len(calls) == 1:
            with other.receiver(other.strategy("other")) as owner:
                run_to_end(other, owner)

    send(service)
    settings = {"max.poll.interval.ms": 6000}
    with service.receiver(service.strategy("slow"), settings=settings, retries=FAST) as receiver:
        run_until(receiver, "a transaction that does not commit", lambda: receiver.counters.retries > 0)
        assert receiver.counters.handled == 0
        for partition in range(3):  # no partition remains paused
            service.send(("a", str(len(IDS) + partition)), partition=partition)
        run_to_end(service, receiver, len(IDS) + 3)
    assert in_order(service.outputs()) == [*IDS, "30", "31", "32"]
    assert len(service.outputs(UNCOMMITTED)) > len(IDS) + 3


class StuckProducer(Producer):
    """Does not return from adding offsets, as librdkafka after a crash of the group's coordinator."""

    released = StopEvent()

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.released.wait(60)

    def purge(self, *_: object) -> None:
        raise AssertionError("the stuck client is called")


def test_a_client_that_does_not_respond_stops_the_receiver(
    service: TransformingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_transactions, "GRACE_S", 0)
    send(service)
    strategy, stopped = service.strategy(create=StuckProducer, seconds=1), pytest.raises(ReceiverStoppedError)
    with service.receiver(strategy) as receiver, stopped as caught:
        run_until(receiver, "never", lambda: False)
    assert isinstance(caught.value.__cause__, ClientStuckError)
    StuckProducer.released.set()
    with service.receiver(service.strategy()) as receiver:
        run_to_end(service, receiver)
    assert in_order(service.outputs()) == IDS


@pytest.mark.long
def test_a_transaction_that_exceeds_its_timeout_names_the_timeout(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    service = new_service(bootstrap, "", create_topic)

    @service.handlers.otherwise
    def be_slow(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        transaction.flush()
        wait_for(
            "the broker to abort the transaction", lambda: ends_of_readers(bootstrap, service.output), seconds=SECONDS
        )

    send(service)
    strategy = service.strategy(**{"transaction.timeout.ms": 1000})
    with (
        service.receiver(strategy, batch_size=1) as receiver,
        pytest.raises(ReceiverStoppedError, match=r"timeout\.ms"),
    ):
        run_until(receiver, "never", lambda: False)


@pytest.mark.long
def test_a_killed_broker_stops_no_partition_for_good(
    bootstrap: str, create_topic: Callable[..., str], stack: Stack, tmp_path: Path
) -> None:
    service = new_service(bootstrap, "", create_topic)
    ids = [str(number) for number in range(3000)]
    send(service, ids)
    module = f"{__package__}.{CHILD.stem}"
    command = [sys.executable, "-m", module, bootstrap, service.topic, service.output, service.group, "none"]

    def progress(count: int) -> Observation[bool]:
        try:
            committed = service.committed()
        except KafkaException as error:
            return Observation(None, str(error))
        return Observation(committed >= count or None, f"{committed} events")

    with ExitStack() as members:
        for number in range(3):
            member = [*command, f"{service.group}-{number}"]
            members.enter_context(ProcessComponent(member, REPOSITORY, tmp_path / f"{number}.log"))
        for count in (300, 1200):
            wait_for("transactions", lambda count=count: progress(count), seconds=SECONDS)  # type: ignore[misc]
            kill(ServiceComponent(stack, "kafka"))
        wait_for("all events", lambda: progress(len(ids)), seconds=2 * SECONDS)
    assert in_order(service.outputs()) == ids


@pytest.mark.parametrize("reaches_broker", [True, False])
def test_an_unknown_outcome_repeats_no_output(service: TransformingService, reaches_broker: bool) -> None:
    send(service)
    with CuttingProxy(service.bootstrap, reaches_broker=reaches_broker) as proxy:
        strategy = service.strategy(seconds=3, **{"bootstrap.servers": proxy.address})
        with service.receiver(strategy, retries=FAST, batch_size=10) as receiver:
            run_until(receiver, "an unknown outcome", lambda: receiver.counters.retries > 0)
            assert proxy.is_cut
            proxy.mend()
            run_to_end(service, receiver)
            run_until(receiver, "every event", lambda: seen(receiver) >= len(IDS))
            assert receiver.counters.duplicates or not reaches_broker
    assert in_order(service.outputs()) == IDS
