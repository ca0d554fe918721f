"""in_order_by_key: keys are handled at the same time, the events of a key one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import TracerProvider

from outbox_events import (
    ConfigurationError,
    Event,
    Handlers,
    OpenTelemetryTracer,
    in_order_by_key,
    recoverers,
    trace_headers,
    use_tracer,
)
from outbox_events.testing import InMemory, TestReceiver, event


def lent(*texts: str) -> list[Event]:
    """Return events whose key is the first letter of their value. The key of `-` is missing."""
    sent = [event("lent", text, key=text[0], partition=1) for text in texts]
    return [replace(each, key=None) if each.key == b"-" else each for each in sent]


class Requests:
    """Requests that are answered in the reverse order of their start, when all that can start have started."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.waiting: dict[str, asyncio.Event] = {}
        self.most = 0

    async def send(self, event: Event[str]) -> str:
        self.started.append(event.value)
        self.waiting[event.value] = answered = asyncio.Event()
        self.most = max(self.most, len(self.waiting))
        try:
            await answered.wait()
        finally:
            del self.waiting[event.value]
        return event.value.upper()

    async def answer(self) -> None:
        while self.waiting:
            self.waiting[list(self.waiting)[-1]].set()
            for _ in range(5):  # until the next request of the key or of another key has started
                await asyncio.sleep(0)


def handled_by(requests: Requests, events: Sequence[Event], limit: int) -> list[str]:
    async def run() -> list[str]:
        async with asyncio.TaskGroup() as group:
            results = group.create_task(in_order_by_key(events, requests.send, limit=limit))
            while not requests.waiting:
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            group.create_task(requests.answer())
        return results.result()

    return asyncio.run(run())


@pytest.mark.parametrize(("limit", "most"), [(16, 4), (2, 2), (1, 1)])
def test_keys_run_at_the_same_time_and_each_key_in_order(limit: int, most: int) -> None:
    events = lent("a1", "b1", "a2", "-1", "c1", "b2", "-2", "a3")
    requests = Requests()
    assert handled_by(requests, events, limit) == ["A1", "B1", "A2", "-1", "C1", "B2", "-2", "A3"]
    assert requests.most == most
    for key in "ab-c":
        of_key = [text for text in requests.started if text[0] == key]
        assert of_key == sorted(of_key)


def test_no_events_and_a_wrong_limit() -> None:
    requests = Requests()
    assert asyncio.run(in_order_by_key([], requests.send)) == []
    with pytest.raises(ConfigurationError, match="limit"):
        asyncio.run(in_order_by_key([], requests.send, limit=0))


def test_after_an_error_other_calls_are_cancelled_and_the_events_are_applied_separately() -> None:
    handlers = Handlers[list[str]]()

    @handlers.batch("lent")
    async def lend(events: Sequence[Event], calls: list[str]) -> None:
        async def request(event: Event) -> str:
            calls.append(event.value)
            if event.value == "b1":
                raise ValueError
            if len(events) > 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    calls.append(f"{event.value} cancelled")
                    raise
            return f"{event.value} done"

        calls += await in_order_by_key(events, request)

    calls: list[str] = []
    with TestReceiver(InMemory(calls), handlers, recoverer=recoverers.log_and_continue) as receiver:
        receiver.deliver(lent("a1", "b1", "a2", "b2"))
    assert calls[:3] == ["a1", "b1", "a1 cancelled"]
    assert [call for call in calls[3:] if call != "b1"] == ["a1", "a1 done", "a2", "a2 done", "b2", "b2 done"]
    assert calls[3:].count("b1") == 3
    assert (receiver.counters.handled, receiver.counters.recovered) == (3, 1)
    assert receiver.committed == {("events", 1): 4}


@pytest.fixture
def _tracer() -> Iterator[None]:
    use_tracer(OpenTelemetryTracer(TracerProvider()))
    yield
    use_tracer(None)


@pytest.mark.usefixtures("_tracer")
def test_each_event_continues_its_trace() -> None:
    handlers = Handlers[dict[str, str]]()

    @handlers.batch("lent")
    async def lend(events: Sequence[Event], traces: dict[str, str]) -> None:
        async def request(event: Event) -> None:
            await asyncio.sleep(0)
            traces[event.value] = trace_headers()["traceparent"].split("-")[1]

        await in_order_by_key(events, request)
        traces["batch"] = trace_headers()["traceparent"].split("-")[1]

    traces: dict[str, str] = {}
    ids = {text: f"{number:032x}" for number, text in enumerate(("a", "b"), 1)}
    sent = [
        event("lent", text, key=text, headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        for text, trace in ids.items()
    ]
    with TestReceiver(InMemory(traces), handlers) as receiver:
        receiver.deliver(sent)
    assert {text: traces[text] for text in ids} == ids
    assert traces["batch"] not in ids.values()
