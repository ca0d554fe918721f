"""Traces: emitted events continue the current trace, and handlers continue the trace of their events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outbox_events import (
    Counters,
    Event,
    Handlers,
    InvalidEventError,
    OpenTelemetryTracer,
    OutboxEvent,
    Record,
    Retries,
    emit,
    emit_async,
    emit_many,
    recoverers,
    trace_headers,
    traced,
    use_tracer,
)
from outbox_events.testing import EmittedEvents, InMemory, MakeReceiver, TestReceiver, event

pytest_plugins = ["outbox_events.testing.fixtures"]
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-11112f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LOAN: dict[str, Any] = {"aggregate_type": "loan", "aggregate_id": "l-1", "event_type": "loaned", "payload": {}}


def send(context: object = None, **options: object) -> None:
    emit(context, **LOAN, **options)  # type: ignore[arg-type]


@pytest.fixture
def answering() -> Handlers[None]:
    """Send an event and a record for each event."""
    handlers = Handlers[None]()
    handlers.on("asked")(lambda _, context: send(context))
    handlers.batch("counted")(lambda _, context: send(context))
    return handlers


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Use OpenTelemetry. Return the exporter of its spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    use_tracer(OpenTelemetryTracer(provider))
    yield exporter
    use_tracer(None)
    provider.shutdown()


def deliver(handlers: Handlers[None], events: Sequence[Event], **options: Any) -> None:  # noqa: ANN401
    with TestReceiver(InMemory(None), handlers, **options) as receiver:
        receiver.deliver(events)


def test_without_a_tracer_no_header_is_added(answering: Handlers[None], emitted_events: EmittedEvents) -> None:
    """The row of a pipeline that has a column for this header would become a dead letter."""
    deliver(answering, [event("asked", headers={"traceparent": PARENT})])
    assert [each.headers for each in emitted_events] == [None]


class FixedTracer(OpenTelemetryTracer):
    """Always has the span PARENT."""

    def headers(self) -> Mapping[str, str]:
        return {"traceparent": PARENT}


@pytest.fixture
def _fixed() -> Iterator[None]:
    use_tracer(FixedTracer())
    yield
    use_tracer(None)


@pytest.mark.usefixtures("_fixed")
def test_emit_adds_the_headers_of_the_trace(emitted_events: EmittedEvents) -> None:
    send(headers={"traceparent": OTHER})
    send(headers={"tenant": "t"})
    send(additional_columns={"traceparent": OTHER})
    emit_many(None, [OutboxEvent(**LOAN), OutboxEvent(**LOAN, headers={"traceparent": OTHER})])  # type: ignore[arg-type]
    asyncio.run(emit_async(None, OutboxEvent(**LOAN)))  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError):
        send(headers="text")
    assert [each.headers for each in emitted_events] == [
        {"traceparent": OTHER},
        {"traceparent": PARENT, "tenant": "t"},
        None,
        {"traceparent": PARENT},
        {"traceparent": OTHER},
        {"traceparent": PARENT},
    ]


@pytest.mark.usefixtures("_fixed")
def test_records_and_requests_continue_the_trace() -> None:
    record = Record("t", b"k", None, (("a", b"1"),))
    assert traced(record).headers == (("a", b"1"), ("traceparent", PARENT.encode()))
    own = Record("t", None, None, (("traceparent", b"own"),))
    assert traced(own) is own
    assert trace_headers() == {"traceparent": PARENT}
    use_tracer(None)
    assert (traced(record).headers, trace_headers()) == (record.headers, {})


# --- OpenTelemetry


def test_the_span_of_a_handler_continues_the_trace(
    answering: Handlers[None], spans: InMemorySpanExporter, emitted_events: EmittedEvents
) -> None:
    sent = event("asked", topic="library.loan", partition=2, headers={"traceparent": PARENT})
    deliver(answering, [sent])
    (span,) = spans.get_finished_spans()
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == tuple(PARENT.split("-")[1:3])
    assert (span.name, span.kind, span.status.status_code) == (
        "process library.loan",
        SpanKind.CONSUMER,
        StatusCode.UNSET,
    )
    assert span.attributes is not None
    assert (span.attributes["messaging.message.id"], span.attributes["messaging.kafka.offset"]) == (sent.event_id, 0)
    # The next consumer continues at this span.
    headers = emitted_events[0].headers
    assert headers is not None
    assert headers["traceparent"] == f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def test_a_batch_has_links_to_the_spans_of_its_events(answering: Handlers[None], spans: InMemorySpanExporter) -> None:
    sent = [event("counted", headers={"traceparent": parent} if parent else {}) for parent in (PARENT, OTHER, "")]
    with pytest.raises(Exception, match="cannot write"):  # there is no connection to which the handler could write
        deliver(answering, sent, retries=Retries(attempts=1))
    batch = spans.get_finished_spans()[0]
    assert batch.parent is None
    assert [f"{link.context.trace_id:032x}" for link in batch.links] == [PARENT.split("-")[1], OTHER.split("-")[1]]
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 3


def test_a_failed_handler_is_an_error_without_the_text_of_its_exception(spans: InMemorySpanExporter) -> None:
    handlers = Handlers[None]()

    @handlers.on("asked")
    def fail(event: Event, _: None) -> None:
        raise ValueError(event.value)

    deliver(handlers, [event("asked", "secret")], recoverer=recoverers.log_and_continue)
    failed: Sequence[ReadableSpan] = spans.get_finished_spans()
    assert len(failed) == 3
    assert all(span.status.status_code is StatusCode.ERROR for span in failed)
    assert failed[0].attributes is not None
    assert failed[0].attributes["error.type"] == "ValueError"
    assert "secret" not in "".join(span.to_json() for span in failed)


# --- measurements


def test_durations_sizes_and_ages_are_observed(make_receiver: MakeReceiver) -> None:
    observed: list[tuple[str, str, float]] = []
    counters = Counters(observe=lambda name, value, event_type: observed.append((name, event_type, value)))
    handlers = Handlers[None]()
    failing = [True]

    @handlers.on("asked")
    def answer(_: Event, __: None) -> None:
        if failing:
            failing.pop()
            raise ValueError

    handlers.batch("counted")(lambda _, __: None)
    receiver = make_receiver(InMemory(None), handlers, counters=counters)
    receiver.deliver([event("counted", timestamp_ms=1000), event("counted"), event("asked")])
    names = [(name, event_type) for name, event_type, _ in observed]
    handlers_called = [event_type for name, event_type in names if name == "handler_seconds"]
    assert handlers_called == ["counted", "asked", "counted", "counted", "asked"]  # the batch failed
    assert [value for name, _, value in observed if name == "transaction_events"] == [1, 1, 1]
    assert names.count(("transaction_seconds", "")) == 3
    receiver.deliver([event("asked", timestamp_ms=-1)])  # the record has no timestamp
    ages = [(event_type, value > 1e9) for name, event_type, value in observed if name == "event_age_seconds"]
    assert ages == [("counted", True), ("counted", False), ("asked", False)]
    assert all(value >= 0 for *_, value in observed)


def test_a_failing_observer_does_not_affect_the_events(make_receiver: MakeReceiver) -> None:
    def observe(name: str, value: float, event_type: str) -> None:
        raise ValueError(name, value, event_type)

    handlers = Handlers[None]()
    handlers.on("asked")(lambda _, __: None)
    receiver = make_receiver(InMemory(None), handlers, counters=Counters(observe=observe))
    receiver.deliver([event("asked")])
    assert receiver.counters.to_dict() == {**Counters().to_dict(), "received": 1, "handled": 1}
    assert "observe" not in receiver.counters.to_dict()
