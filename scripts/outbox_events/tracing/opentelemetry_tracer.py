"""Connect the library to OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider, get_current_span, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


class OpenTelemetryTracer:
    """Runs handlers in spans of OpenTelemetry, and adds the current span to sent events: `use_tracer(...)`.

    The span of one event is a child of the span that sent it. The span of a batch has a link to each of these spans.
    Spans never contain messages of exceptions, because they can contain values.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Without `provider`, the global provider is used."""
        self._tracer = get_tracer("outbox_events", tracer_provider=provider)
        self._format = TraceContextTextMapPropagator()

    def headers(self) -> Mapping[str, str]:
        """Return the headers of the current span. They are empty if there is none."""
        headers: dict[str, str] = {}
        self._format.inject(headers)
        return headers

    @contextmanager
    def processing(
        self, topic: str, parents: Sequence[Mapping[str, str]], attributes: Mapping[str, str | int]
    ) -> Iterator[None]:
        """Run the block in the span `process TOPIC`. If it raises an exception, the span has the status ERROR."""
        contexts = [self._format.extract(parent, Context()) for parent in parents]
        spans = [get_current_span(context).get_span_context() for context in contexts]
        with self._tracer.start_as_current_span(
            f"process {topic}",
            contexts[0] if len(contexts) == 1 else Context(),
            SpanKind.CONSUMER,
            attributes,
            [Link(span) for span in spans if span.is_valid] if len(spans) > 1 else None,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute("error.type", type(error).__qualname__)
                raise
