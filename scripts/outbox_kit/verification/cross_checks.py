"""Checks of two systems against each other: what the connector was told against what it finds there."""

from __future__ import annotations

from collections.abc import Iterator

from fastavro.schema import SchemaParseException, UnknownType

from outbox_kit.connect import state as connect_state
from outbox_kit.errors import RECOVER
from outbox_kit.pipeline.avro import same_schema, without_docs
from outbox_kit.rules import Finding, Rule, rule
from outbox_kit.verification.routes import Route, number, router_prefix, routes
from outbox_kit.verification.snapshot import World

NO_CONNECTOR = "the live connector config is not known"
# Debezium's and the producer's own defaults.
STATUS_INTERVAL_MS, MAX_REQUEST_SIZE = 10_000, 1_048_576
# Not the producer's two minutes: Connect sets it for source connectors (Worker.baseProducerProps).
DELIVERY_TIMEOUT_MS = 2_147_483_647
# A producer that waits for longer than this has, for an operator, hung while its state says RUNNING.
LONGEST_WAIT_MS = 600_000
ACKNOWLEDGEMENTS = 2

RULES: list[Rule[World]] = []


def live(world: World) -> dict[str, str] | None:
    """The connector's config as Connect has it."""
    return world.connect.look.observed.actual.config if world.connect.look else None


@rule(
    RULES,
    "path.partitions",
    guards="a topic has every partition that the router sends to: one beyond the count blocks the task as RUNNING",
    remedy="the topic grows before the config: raise the topic's partitions, or run `outbox apply`",
)
def _partitions(world: World) -> Finding:
    config, expected = live(world), "the count that the router was told"
    if config is None or world.kafka.look is None:
        return Finding(None, NO_CONNECTOR if config is None else "Kafka does not answer", expected)
    found, actual = routes(config), world.kafka.look.actual
    wrong = [
        f"{route.topic} has {actual[route.topic].partitions}, the router {route.partitions}"
        for route in found.values()
        if route.topic in actual and actual[route.topic].partitions != route.partitions
    ]
    return Finding(not wrong, "; ".join(wrong) or ("the same" if found else "no OutboxRouter"), expected)


@rule(
    RULES,
    "path.record-size",
    guards="a record that the router lets pass fits the producer's request, its buffer and the topic",
    remedy="one number rules the path, connector.max_record_bytes: set it, run `outbox apply`",
)
def _record_size(world: World) -> Finding:
    config, expected = live(world), "router ≤ producer's request ≤ topic"
    if config is None or world.kafka.look is None:
        return Finding(None, NO_CONNECTOR if config is None else "Kafka does not answer", expected)
    router = number(config.get(f"{router_prefix(config)}max.record.bytes"))
    request = number(config.get("producer.override.max.request.size"), MAX_REQUEST_SIZE)
    buffer = number(config.get("producer.override.buffer.memory"), request)
    limits = [(router, "the router", request, "the producer's max.request.size")]
    limits += [(request, "a request", buffer, "the producer's buffer.memory")]
    for route in routes(config).values():
        topic = world.kafka.look.actual.get(route.topic)
        if topic:
            size = number(topic.config.get("max.message.bytes"), MAX_REQUEST_SIZE)
            limits.append((router, "the router", size, f"max.message.bytes of {route.topic}"))
    wrong = [f"{left} ({who}) > {right} ({whose})" for left, who, right, whose in limits if left > right]
    return Finding(not wrong, "; ".join(wrong) or f"{router} ≤ {request} ≤ topics", expected)


@rule(
    RULES,
    "path.schema-ids",
    guards="every schema id that the router writes is registered, for the very schema that it encodes with",
    remedy="run `outbox apply`; if the registry lost its content, restore it: records carry the old ids",
)
def _schema_ids(world: World) -> Finding:
    config, expected = live(world), "registered under the same id, with the same text"
    if config is None or world.registry.look is None:
        return Finding(None, NO_CONNECTOR if config is None else "the registry does not answer", expected)
    found = routes(config)
    wrong = [words for kind, route in found.items() for words in _wrong_versions(world, kind, route)]
    return Finding(not wrong, "; ".join(wrong) or ("all registered" if found else "no OutboxRouter"), expected)


def _wrong_versions(world: World, kind: str, route: Route) -> Iterator[str]:
    aggregate = world.deployment.pipeline.routed.get(kind)
    subject = world.deployment.pipeline.subject_of(kind)
    for version in route.versions:
        registered = world.later.registered.get((subject, version.number))
        if registered is None:
            yield f"{subject} has no version {version.number}"
        elif registered.id != version.id:
            yield f"{subject} version {version.number} has id {registered.id}, the router writes {version.id}"
        # A schema with references is registered in parts, and stands in the config as a whole; without docs.
        elif not (aggregate and aggregate.references) and not _same(registered.text, version.text):
            yield f"{subject} version {version.number} is another schema than the router's"


def _same(registered: str, carried: str) -> bool:
    """Whether two schema texts say the same, docs aside; what is no schema at all does not."""
    try:
        return same_schema(without_docs(registered), without_docs(carried))
    except (ValueError, SchemaParseException, UnknownType):
        return False


@rule(
    RULES,
    "path.offset-not-ahead",
    guards="the connector does not stand ahead of the server: PostgreSQL would skip every row up to there in silence",
    remedy=f"the server was restored or promoted without its last WAL: {RECOVER}",
)
def _offset_not_ahead(world: World) -> Finding:
    expected = "an lsn that the server has reached"
    if world.postgres.look is None or world.connect.look is None:
        return Finding(None, "PostgreSQL or Connect does not answer", expected)
    reached = connect_state.position(world.connect.look.observed.actual)
    # Read after the offset: on a busy outbox both move.
    server = max(world.later.position, world.postgres.look.actual.wal_position)
    return Finding(reached <= server, f"connector at {reached}, server at {server}", expected)


@rule(
    RULES,
    "path.offset-covers-slot",
    guards="the slot is not ahead of the connector's offset: what lies between was acknowledged by somebody else",
    remedy=f"the slot was made anew, advanced, or read by another client: {RECOVER}",
)
def _offset_covers_slot(world: World) -> Finding:
    expected = "the slot at or behind the connector's offset"
    if world.postgres.look is None or world.connect.look is None:
        return Finding(None, "PostgreSQL or Connect does not answer", expected)
    slot, reached = world.postgres.look.details.slot, connect_state.position(world.connect.look.observed.actual)
    if slot is None or slot["confirmed"] is None or not reached:
        return Finding(None, "no slot, or no offset", expected)
    return Finding(slot["confirmed"] <= reached, f"slot at {slot['confirmed']}, connector at {reached}", expected)


@rule(
    RULES,
    "path.wal-sender-timeout",
    guards="the connector acknowledges often enough: a slower one is cut off by the server, again and again",
    remedy="raise wal_sender_timeout for the connector's role, or lower status.update.interval.ms",
)
def _wal_sender_timeout(world: World) -> Finding:
    config = live(world)
    if config is None or world.postgres.look is None:
        words = NO_CONNECTOR if config is None else "PostgreSQL does not answer"
        return Finding(None, words, "twice the interval of acknowledgements")
    interval = number(config.get("status.update.interval.ms"), STATUS_INTERVAL_MS)
    timeout = world.postgres.look.details.sender_timeout_ms
    seen = f"wal_sender_timeout {timeout} ms, an acknowledgement every {interval} ms"
    good = timeout == 0 or timeout >= ACKNOWLEDGEMENTS * interval
    return Finding(good, seen, f"0, or {ACKNOWLEDGEMENTS * interval} ms at least")


@rule(
    RULES,
    "path.producer-gives-up",
    guards="the producer gives up in the end: Connect's own max.block.ms is for ever, a hang that says RUNNING",
    remedy="run `outbox apply`; lower connector.delivery_timeout_ms",
)
def _producer_gives_up(world: World) -> Finding:
    config, expected = live(world), f"{LONGEST_WAIT_MS} ms at most"
    if config is None:
        return Finding(None, NO_CONNECTOR, expected)
    for_ever = 2**63 - 1
    block = number(config.get("producer.override.max.block.ms"), for_ever)
    delivery = number(config.get("producer.override.delivery.timeout.ms"), DELIVERY_TIMEOUT_MS)
    words = "for ever" if block == for_ever else f"{block} ms"
    seen = f"max.block.ms {words}, delivery.timeout.ms {delivery} ms"
    return Finding(max(block, delivery) <= LONGEST_WAIT_MS, seen, expected)
