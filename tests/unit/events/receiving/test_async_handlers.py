"""Handlers, duplicates and recoverers that are coroutines run to their end, in the transaction of their events."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import pytest

from outbox_events import (
    ConfigurationError,
    Counters,
    Event,
    Handlers,
    ProcessedEvents,
    Reaction,
    Receiver,
    ReceiverStoppedError,
    RejectedError,
    Retries,
    WaitTimeoutError,
    default_reaction,
    recoverers,
)
from outbox_events.receiving.handler_loop import HandlerLoop
from outbox_events.testing import InMemory, TestReceiver, event


@pytest.fixture
def loop() -> Iterator[HandlerLoop]:
    loop = HandlerLoop()
    yield loop
    loop.close()


def noted(*texts: str) -> list[Event]:
    return [event("noted", text, key=text) for text in texts]


async def note(event: Event, notes: list[str]) -> None:
    await asyncio.sleep(0)
    notes.append(event.value)


class Note:
    async def __call__(self, event: Event, notes: list[str]) -> None:
        await note(event, notes)

    async def method(self, event: Event, notes: list[str]) -> None:
        await note(event, notes)


def wrapper(function: Callable[..., object]) -> Callable[..., Any]:
    """Return a function that is not recognized as a coroutine or generator function."""

    def call(*arguments: object) -> object:
        return function(*arguments)

    return call


class Awaitable:
    """Can be awaited, but is not a coroutine."""

    def __init__(self, event: Event, notes: list[str]) -> None:
        self.coroutine = note(event, notes)

    def __await__(self) -> Iterator[Any]:
        return self.coroutine.__await__()


@pytest.mark.parametrize(
    "handler",
    [note, Note(), Note().method, partial(note), partial(Note()), wrapper(note), Awaitable],
)
def test_each_kind_of_coroutine_runs_to_its_end(handler: Any) -> None:  # noqa: ANN401
    for register in (Handlers.on, Handlers.batch):
        notes: list[str] = []
        handlers = Handlers[list[str]]()
        if register is Handlers.on:
            handlers.on("noted")(handler)
        else:
            handlers.otherwise(handler)
        handlers.on_duplicate(handler)
        with TestReceiver(InMemory(notes), handlers) as receiver:
            first, second = noted("a", "b")
            receiver.deliver([first, second, first])
        assert notes == ["a", "b", "a"]
        assert (receiver.counters.handled, receiver.counters.duplicates) == (2, 1)


def test_a_batch_and_a_type_can_be_handled_by_a_coroutine() -> None:
    @dataclass
    class Loan:
        price: int

    handlers = Handlers[list[int]]()

    @handlers.batch("lent", type=Loan)
    async def add(events: Sequence[Event[Loan]], sums: list[int]) -> None:
        await asyncio.sleep(0)
        sums.append(sum(event.value.price for event in events))

    sums: list[int] = []
    with TestReceiver(InMemory(sums), handlers) as receiver:
        receiver.deliver([event("lent", {"price": price}) for price in (1, 2)])
    assert sums == [3]


def test_a_recoverer_can_be_a_coroutine() -> None:
    handlers = Handlers[list[str]]()
    handlers.on("noted")(fail)

    async def recover(failure: recoverers.Failure, notes: list[str]) -> None:
        await note(failure.event, notes)

    notes: list[str] = []
    with TestReceiver(InMemory(notes), handlers, retries=Retries(attempts=2), recoverer=recover) as receiver:
        receiver.deliver(noted("bad"))
    assert notes == ["bad"]
    assert receiver.counters.recovered == 1


async def fail(event: Event, _: object) -> None:
    await asyncio.sleep(0)
    raise ValueError(event.value)


def test_a_coroutine_that_fails_is_retried_and_stops_the_receiver() -> None:
    handlers = Handlers[None]()
    handlers.on("noted")(fail)
    with TestReceiver(InMemory(None), handlers, retries=Retries(attempts=2)) as receiver:
        with pytest.raises(ReceiverStoppedError) as caught:
            receiver.deliver(noted("bad"))
        assert isinstance(caught.value.__cause__, ValueError)
        assert receiver.committed == {}
    assert receiver.counters.retries == 1


# --- functions whose body would not run


async def async_generator(event: Event, context: object) -> AsyncIterator[None]:
    del event
    yield context  # type: ignore[misc]


def generator(event: Event, context: object) -> Iterator[None]:
    del event
    yield context  # type: ignore[misc]


class AsyncGenerator:
    async def __call__(self, event: Event, context: object) -> AsyncIterator[None]:
        del event
        yield context  # type: ignore[misc]


@pytest.mark.parametrize(
    "handler", [async_generator, generator, AsyncGenerator(), partial(AsyncGenerator()), "name", 5]
)
def test_functions_that_would_not_run_are_refused_when_they_are_registered(handler: Any) -> None:  # noqa: ANN401
    handlers = Handlers[None]()
    for register in (handlers.on("noted"), handlers.batch("noted"), handlers.otherwise, handlers.on_duplicate):
        with pytest.raises(ConfigurationError):
            register(handler)
    with pytest.raises(ConfigurationError):
        TestReceiver(InMemory(None), handlers, recoverer=handler)


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_returned_generator_stops_the_receiver(function: Callable[..., object]) -> None:
    handlers = Handlers[None]()
    handlers.on("noted")(wrapper(function))
    receiver = TestReceiver(InMemory(None), handlers, recoverer=recoverers.log_and_continue)
    with receiver, pytest.raises(ReceiverStoppedError, match="generator would never run"):
        receiver.deliver(noted("a"))
    assert receiver.committed == {}


async def coroutine(_: object) -> Any:  # noqa: ANN401
    """Stand for a decoder, an identification or a reaction."""


def test_functions_whose_result_is_needed_cannot_be_coroutines() -> None:
    with pytest.raises(ConfigurationError, match="coroutine"):
        Retries(reaction=coroutine)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="coroutine"):
        ProcessedEvents(lambda: psycopg.connect(""), identify=partial(coroutine))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="coroutine"):
        Receiver({}, ["t"], InMemory(None), Handlers[None](), decode=coroutine)
    for name in ("hook", "observe"):
        with pytest.raises(ConfigurationError, match="coroutine"):
            Counters(**{name: coroutine})  # type: ignore[arg-type]


# --- errors


def test_the_first_error_of_a_group_determines_the_reaction(loop: HandlerLoop) -> None:
    lost = psycopg.OperationalError("lost")
    lost.__context__ = context = OSError()

    async def handle() -> None:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(asyncio.sleep(60))
            inner.create_task(fail_with(lost))

    async def fail_with(error: Exception) -> None:
        raise error

    def synchronous() -> None:
        asyncio.run(handle())

    for function in (handle, synchronous):
        with pytest.raises(psycopg.OperationalError) as caught:
            loop.call(function)
        assert caught.value is lost
        assert caught.value.__context__ is context
        assert default_reaction(caught.value) is Reaction.WAIT


def test_an_outage_in_a_task_group_is_not_an_attempt() -> None:
    handlers = Handlers[None]()
    recovered: list[str] = []

    @handlers.on("noted")
    async def write(_: Event, __: None) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(execute())

    async def execute() -> None:
        raise psycopg.OperationalError("lost")

    receiver = TestReceiver(
        InMemory(None), handlers, recoverer=lambda failure, _: recovered.append(failure.event.value)
    )
    with receiver, pytest.raises(WaitTimeoutError):
        receiver.deliver(noted("a"))
    assert recovered == []


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_is_cancelled_has_failed(loop: HandlerLoop, is_async: bool) -> None:
    def cancelled() -> None:
        raise asyncio.CancelledError

    async def async_cancelled() -> None:
        cancelled()

    with pytest.raises(RejectedError) as caught:
        loop.call(async_cancelled if is_async else cancelled)
    assert default_reaction(caught.value) is Reaction.RETRY


@pytest.mark.parametrize("error", [psycopg.Rollback(), ExceptionGroup("tasks", [psycopg.Rollback()])])
def test_a_handler_that_raises_rollback_has_failed(loop: HandlerLoop, error: Exception) -> None:
    """psycopg would end the receiver's transaction without an error, and the events would be lost."""

    def rolling_back() -> None:
        raise error

    with pytest.raises(RejectedError) as caught:
        loop.call(rolling_back)
    assert default_reaction(caught.value) is Reaction.RETRY


def test_an_interrupt_ends_a_coroutine(loop: HandlerLoop) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        loop.call(wait)
    assert ended == ["cancelled"]


# --- tasks and the event loop


def test_tasks_that_a_failed_handler_has_left_do_not_run_with_later_events() -> None:
    """asyncio.gather raises the first error while the other tasks continue."""
    handlers = Handlers[list[str]]()

    @handlers.batch("noted")
    async def write(events: Sequence[Event], notes: list[str]) -> None:
        async def write_one(event: Event) -> None:
            if event.value == "bad":
                raise ValueError
            for _ in range(10):
                await asyncio.sleep(0)
            notes.append(event.value)

        await asyncio.gather(*(write_one(event) for event in events))

    notes: list[str] = []
    with TestReceiver(InMemory(notes), handlers, recoverer=recoverers.log_and_continue) as receiver:
        receiver.deliver(noted("bad", "a", "b"))
    assert notes == ["a", "b"]


def test_a_handler_that_does_not_await_its_tasks_stops_the_receiver() -> None:
    handlers = Handlers[list[str]]()

    @handlers.on("noted")
    async def forget(event: Event, notes: list[str]) -> None:
        tasks.append(asyncio.create_task(note(event, notes)))

    tasks: list[asyncio.Task[None]] = []
    notes: list[str] = []
    with TestReceiver(InMemory(notes), handlers, recoverer=recoverers.log_and_continue) as receiver:
        with pytest.raises(ReceiverStoppedError, match="note"):
            receiver.deliver(noted("a"))
        assert receiver.committed == {}
    assert tasks[0].cancelled()


def test_all_calls_use_one_event_loop_and_the_context_of_their_caller(loop: HandlerLoop) -> None:
    span: ContextVar[str] = ContextVar("span")
    seen: list[tuple[str, object]] = []

    async def see() -> None:
        seen.append((span.get(), asyncio.get_running_loop()))

    for name in ("first", "second"):
        span.set(name)
        loop.call(see)
    assert [name for name, _ in seen] == ["first", "second"]
    assert seen[0][1] is seen[1][1]


def test_a_receiver_on_a_running_event_loop_stops_with_a_hint() -> None:
    notes: list[str] = []
    handlers = Handlers[list[str]]()
    handlers.on("noted")(note)

    async def deliver(in_thread: bool) -> None:
        with TestReceiver(InMemory(notes), handlers, recoverer=recoverers.log_and_continue) as receiver:
            if in_thread:
                await asyncio.to_thread(receiver.deliver, noted("a"))
            else:
                receiver.deliver(noted("b"))

    with pytest.raises(ReceiverStoppedError) as caught:
        asyncio.run(deliver(in_thread=False))
    assert "asyncio.to_thread" in caught.value.hint
    asyncio.run(deliver(in_thread=True))
    assert notes == ["a"]


def test_the_lines_in_which_tasks_wait_can_be_read_in_another_thread(loop: HandlerLoop) -> None:
    stacks: list[str] = []

    async def handle() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(request_of_a_task())
            group.create_task(read_stacks())

    async def request_of_a_task() -> None:
        await wait_for_the_answer()

    async def read_stacks() -> None:
        stacks.append(await asyncio.to_thread(loop.stacks))
        answered.set()

    async def wait_for_the_answer() -> None:
        await answered.wait()

    answered = asyncio.Event()
    assert loop.stacks() == ""
    loop.call(handle)
    assert "in request_of_a_task" in stacks[0]
    assert "in wait_for_the_answer" in stacks[0]
    assert "in handle" in stacks[0]
    assert loop.stacks() == ""


def test_closing_does_not_wait_for_threads_of_handlers() -> None:
    handlers = Handlers[threading.Event]()

    @handlers.on("noted")
    async def leave_a_thread(_: Event, released: threading.Event) -> None:
        asyncio.get_running_loop().run_in_executor(None, released.wait)
        await asyncio.sleep(0)

    released = threading.Event()
    with TestReceiver(InMemory(released), handlers) as receiver:
        receiver.deliver(noted("a"))
    assert not released.is_set()
    released.set()
