"""Connector configs that the benchmarks compare: outbox-kit's config, and alternatives with the same settings."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.benchmark_stack import BenchmarkStack

EVENT_ROUTER = "outbox-postgres-eventrouter"
CONSTANT = "io.outboxkit.bench.ConstantRecord"
# Size of a book of the backlog in Avro, including the frame of five bytes.
CONSTANT_BYTES = 134
# Records of the same size as OutboxRouter's, so that the worker converts and sends the same number of bytes.
CONSTANT_HEADERS = (
    "event_id=00000000-0000-0000-0000-000000000000,event_type=book_changed,aggregate_type=book,"
    "event_time=2026-11-20T18:31:38.123456Z,source_sequence=0001_0000000000000000-0000000000000000"
)
# Defaults of Debezium and Connect that outbox-kit overrides.
TUNED = (
    *("poll.interval.ms", "max.batch.size", "max.queue.size", "heartbeat.interval.ms", "heartbeat.action.query"),
    *("extended.headers.enabled", "slot.retry.delay.ms", "slot.max.retries"),
)


def outbox_router(bench: BenchmarkStack, topic: str) -> dict[str, str]:
    """Return the config of outbox-kit."""
    return {**bench.config("outbox-postgres"), "transforms.outbox.aggregate.book.topic": topic}


def event_router(bench: BenchmarkStack, topic: str) -> dict[str, str]:
    """Return EventRouter with the settings of outbox-kit. The payload is passed through as text."""
    return {**bench.config(EVENT_ROUTER), "transforms.outbox.route.topic.replacement": topic}


def event_router_one_header(bench: BenchmarkStack, topic: str) -> dict[str, str]:
    """Return `event_router` with the event id as its only header."""
    config = event_router(bench, topic)
    del config["transforms.outbox.table.fields.additional.placement"]
    return config


def event_router_avro(bench: BenchmarkStack, topic: str) -> dict[str, str]:
    """Return `event_router` with JSON expansion and Apicurio's Avro converter."""
    converter = {
        key: value
        for key, value in bench.config("outbox-postgres-chain").items()
        if key == "value.converter" or key.startswith("value.converter.apicurio.registry.")
    }
    del converter["value.converter.apicurio.registry.artifact-resolver-strategy"]
    return {
        **event_router(bench, topic),
        **converter,
        "value.converter.apicurio.registry.auto-register": "true",
        "value.converter.apicurio.registry.auto-register.if-exists": "RETURN_OR_UPDATE",
        "transforms.outbox.table.expand.json.payload": "true",
    }


def constant(bench: BenchmarkStack, topic: str) -> dict[str, str]:
    """Return a config whose transform writes constant records, which shows the upper limit of the worker."""
    config = bench.config("outbox-postgres")
    retained = {key: value for key, value in config.items() if not key.startswith("transforms.")}
    return {
        **retained,
        "transforms.outbox.type": CONSTANT,
        "transforms.outbox.topic": topic,
        "transforms.outbox.key.field": "aggregate_id",
        "transforms.outbox.value.bytes": str(CONSTANT_BYTES),
        "transforms.outbox.headers": CONSTANT_HEADERS,
    }


def event_router_defaults(bench: BenchmarkStack, topic: str) -> dict[str, str]:
    """Return EventRouter with the defaults of Debezium and Connect."""
    return {
        key: value
        for key, value in event_router(bench, topic).items()
        if key not in TUNED and not key.startswith("producer.override.")
    }


Variant = Callable[[BenchmarkStack, str], dict[str, str]]


def router_variants(text: str) -> dict[str, Variant]:
    """Return one OutboxRouter per group of settings, such as `max.batch.size=8192 linger.ms=0; poll.interval.ms=1`."""

    def with_settings(settings: dict[str, str]) -> Variant:
        return lambda bench, topic: {**outbox_router(bench, topic), **settings}

    groups = [group.split() for group in text.split(";") if group.strip()]
    settings = [dict(setting.split("=", 1) for setting in group) for group in groups]
    return {f"router {' '.join(group)}": with_settings(values) for group, values in zip(groups, settings, strict=True)}
