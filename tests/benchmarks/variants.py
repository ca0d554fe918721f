"""The connectors that are compared: what the kit renders, and what it is compared with under the same settings."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.stage import Stage

EVENT_ROUTER = "outbox-postgres-eventrouter"
CONSTANT = "io.outboxkit.bench.ConstantRecord"
# Size of a book of the backlog in Avro with its five bytes of frame.
CONSTANT_BYTES = 134
# As long as those of OutboxRouter, so that the worker has as much to convert, hash and send.
CONSTANT_HEADERS = (
    "event_id=00000000-0000-0000-0000-000000000000,event_type=book_changed,aggregate_type=book,"
    "event_time=2026-11-20T18:31:38.123456Z,source_sequence=0001_0000000000000000-0000000000000000"
)
# What Debezium and Connect have a default for, and the kit sets otherwise.
TUNED = (
    *("poll.interval.ms", "max.batch.size", "max.queue.size", "heartbeat.interval.ms", "heartbeat.action.query"),
    *("extended.headers.enabled", "slot.retry.delay.ms", "slot.max.retries"),
)


def outbox_router(place: Stage, topic: str) -> dict[str, str]:
    """The kit's own connector."""
    return {**place.config("outbox-postgres"), "transforms.outbox.aggregate.book.topic": topic}


def event_router(place: Stage, topic: str) -> dict[str, str]:
    """Debezium's EventRouter, the payload passed on as text, under the kit's settings."""
    return {**place.config(EVENT_ROUTER), "transforms.outbox.route.topic.replacement": topic}


def event_router_bare(place: Stage, topic: str) -> dict[str, str]:
    """... with one header, the event's id, instead of those of the contract."""
    config = event_router(place, topic)
    del config["transforms.outbox.table.fields.additional.placement"]
    return config


def event_router_avro(place: Stage, topic: str) -> dict[str, str]:
    """... with the JSON expanded and written as Avro, which is what EventRouter offers to get there."""
    converter = {
        key: value
        for key, value in place.config("outbox-postgres-chain").items()
        if key == "value.converter" or key.startswith("value.converter.apicurio.registry.")
    }
    del converter["value.converter.apicurio.registry.artifact-resolver-strategy"]
    return {
        **event_router(place, topic),
        **converter,
        "value.converter.apicurio.registry.auto-register": "true",
        "value.converter.apicurio.registry.auto-register.if-exists": "RETURN_OR_UPDATE",
        "transforms.outbox.table.expand.json.payload": "true",
    }


def constant(place: Stage, topic: str) -> dict[str, str]:
    """A transform that does nothing: the ceiling of the worker."""
    config = place.config("outbox-postgres")
    kept = {key: value for key, value in config.items() if not key.startswith("transforms.")}
    return {
        **kept,
        "transforms.outbox.type": CONSTANT,
        "transforms.outbox.topic": topic,
        "transforms.outbox.key.field": "aggregate_id",
        "transforms.outbox.value.bytes": str(CONSTANT_BYTES),
        "transforms.outbox.headers": CONSTANT_HEADERS,
    }


def event_router_defaults(place: Stage, topic: str) -> dict[str, str]:
    """EventRouter, and Debezium's and Connect's own settings wherever they have some."""
    return {
        key: value
        for key, value in event_router(place, topic).items()
        if key not in TUNED and not key.startswith("producer.override.")
    }


Variant = Callable[[Stage, str], dict[str, str]]


def tried(text: str) -> dict[str, Variant]:
    """OutboxRouter under other settings: `max.batch.size=8192 max.queue.size=32768; poll.interval.ms=1` is two."""

    def under(settings: dict[str, str]) -> Variant:
        return lambda place, topic: {**outbox_router(place, topic), **settings}

    groups = [group.split() for group in text.split(";") if group.strip()]
    return {
        f"OutboxRouter, {' '.join(group)}": under(dict(setting.split("=", 1) for setting in group)) for group in groups
    }
