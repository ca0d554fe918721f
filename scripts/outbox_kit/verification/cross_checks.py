"""Checks that the live connector config is consistent with topics, registry and database."""

from __future__ import annotations

from collections.abc import Iterator

from fastavro.schema import SchemaParseException, UnknownType

from outbox_kit.connect.state import stored_lsn
from outbox_kit.connector_config import (
    MAX_BLOCK_MS_LIMIT,
    MAX_MESSAGE_BYTES,
    PRODUCER_DEFAULTS,
    SchemaVersion,
    outbox_router,
    parse_int,
    producer_setting,
    router_routes,
    schema_versions,
)
from outbox_kit.errors import RECOVER_HINT
from outbox_kit.pipeline.avro import same_schema, without_docs
from outbox_kit.rules import Finding, Rules
from outbox_kit.verification.live_state import LiveState

NO_CONFIG = "the live connector config could not be read"
NO_ROUTER = "no OutboxRouter"
STATUS_INTERVAL_MS = 10_000  # Debezium's default
STATUS_UPDATES_PER_TIMEOUT = 2

RULES = Rules[LiveState]()


@RULES.rule(
    "path.partitions",
    condition="every topic has the partition count of its route; the task blocks on a missing partition",
    remedy="run `outbox apply`, or add the missing partitions to the topic",
)
def _partitions(state: LiveState) -> Finding:
    config, expected = state.config, "the partition count of the route"
    if config is None or state.kafka.value is None:
        return Finding(None, NO_CONFIG if config is None else "Kafka does not respond", expected)
    router, topics = outbox_router(config), state.kafka.value.actual
    if router is None:
        return Finding(True, NO_ROUTER, expected)
    problems = [
        f"{route.topic} has {topics[route.topic].partitions}, the route {parse_int(route.partitions)}"
        for route in router_routes(router)
        if route.topic in topics and topics[route.topic].partitions != parse_int(route.partitions)
    ]
    return Finding(not problems, "; ".join(problems) or "equal", expected)


@RULES.rule(
    "path.record-size",
    condition="a record of the router's maximum size is within the limits of the producer and the topic",
    remedy="set connector.max_record_bytes, from which all limits are derived, and run `outbox apply`",
)
def _record_size(state: LiveState) -> Finding:
    config, expected = state.config, "router ≤ producer's request ≤ topic"
    if config is None or state.kafka.value is None:
        return Finding(None, NO_CONFIG if config is None else "Kafka does not respond", expected)
    router = outbox_router(config)
    record = parse_int(router.settings.get("max.record.bytes")) if router else 0
    request, buffer = producer_setting(config, "max.request.size"), producer_setting(config, "buffer.memory")
    limits = [(record, "the router", request, "max.request.size"), (request, "a request", buffer, "buffer.memory")]
    for route in router_routes(router) if router else ():
        topic = state.kafka.value.actual.get(route.topic)
        if topic:
            size = parse_int(topic.config.get("max.message.bytes"), MAX_MESSAGE_BYTES)
            limits.append((record, "the router", size, f"max.message.bytes of {route.topic}"))
    problems = [f"{size} ({sender}) > {limit} ({name})" for size, sender, limit, name in limits if size > limit]
    return Finding(not problems, "; ".join(problems) or f"{record} ≤ {request} ≤ topics", expected)


@RULES.rule(
    "path.schema-ids",
    condition="the registry has every schema of the router under the id that the router writes",
    remedy="run `outbox apply`; if the registry lost schemas, restore them with the ids that existing records contain",
)
def _schema_ids(state: LiveState) -> Finding:
    config, expected = state.config, "registered under the same id, with the same text"
    if config is None or state.registry.value is None:
        return Finding(None, NO_CONFIG if config is None else "the registry does not respond", expected)
    router = outbox_router(config)
    if router is None:
        return Finding(True, NO_ROUTER, expected)
    problems = [
        problem
        for name in router.aggregates
        for version in schema_versions(router, name)
        for problem in _version_problems(state, name, version)
    ]
    return Finding(not problems, "; ".join(problems) or "all registered", expected)


def _version_problems(state: LiveState, name: str, version: SchemaVersion) -> Iterator[str]:
    aggregate = state.deployment.pipeline.routed.get(name)
    subject = state.deployment.pipeline.subject_of(name)
    registered = state.registered.get((subject, parse_int(version.label)))
    if registered is None:
        yield f"{subject} has no version {version.label}"
    elif registered.id != parse_int(version.id):
        yield f"{subject} version {version.label} has id {registered.id}, the router writes {version.id}"
    # Schemas with references are not compared: types are inlined in the config, but not in the registry.
    elif not (aggregate and aggregate.references) and not _is_same_schema(registered.text, version.text or ""):
        yield f"{subject} version {version.label} differs from the schema of the router"


def _is_same_schema(registered: str, configured: str) -> bool:
    """Return whether two schemas are equal apart from docs. Return False if a text is not a valid schema."""
    try:
        return same_schema(without_docs(registered), without_docs(configured))
    except (ValueError, SchemaParseException, UnknownType):
        return False


@RULES.rule(
    "path.offset-not-ahead",
    condition="the connector's offset is not beyond the server's WAL; otherwise PostgreSQL skips rows up to the offset",
    remedy=f"the server was restored or promoted without its last WAL: {RECOVER_HINT}",
)
def _offset_not_ahead(state: LiveState) -> Finding:
    expected = "an LSN that the server has reached"
    if state.postgres.value is None or state.connect.value is None:
        return Finding(None, "PostgreSQL or Connect does not respond", expected)
    offset = stored_lsn(state.connect.value.observed.actual)
    # The connector may have advanced since wal_position was first read.
    server_lsn = max(state.wal_position, state.postgres.value.actual.wal_position)
    return Finding(offset <= server_lsn, f"connector at {offset}, server at {server_lsn}", expected)


@RULES.rule(
    "path.offset-covers-slot",
    condition="the slot is not beyond the connector's offset; otherwise another client acknowledged rows in between",
    remedy=f"the slot was recreated, advanced, or read by another client: {RECOVER_HINT}",
)
def _offset_covers_slot(state: LiveState) -> Finding:
    expected = "the slot not beyond the connector's offset"
    if state.postgres.value is None or state.connect.value is None:
        return Finding(None, "PostgreSQL or Connect does not respond", expected)
    slot, offset = state.postgres.value.actual.slot, stored_lsn(state.connect.value.observed.actual)
    if slot is None or slot.confirmed_flush is None or not offset:
        return Finding(None, "the slot or the offset does not exist", expected)
    return Finding(slot.confirmed_flush <= offset, f"slot at {slot.confirmed_flush}, connector at {offset}", expected)


@RULES.rule(
    "path.wal-sender-timeout",
    condition="the connector acknowledges WAL within wal_sender_timeout; otherwise the server closes the connection",
    remedy="raise wal_sender_timeout for the connector's role, or lower status.update.interval.ms",
)
def _wal_sender_timeout(state: LiveState) -> Finding:
    config, database = state.config, state.postgres.value
    if config is None or database is None:
        reason = NO_CONFIG if config is None else "PostgreSQL does not respond"
        return Finding(None, reason, "twice the interval of acknowledgements")
    interval = parse_int(config.get("status.update.interval.ms"), STATUS_INTERVAL_MS)
    timeout, minimum = database.additional.sender_timeout_ms, STATUS_UPDATES_PER_TIMEOUT * interval
    actual = f"wal_sender_timeout {timeout} ms, an acknowledgement every {interval} ms"
    return Finding(timeout == 0 or timeout >= minimum, actual, f"0, or at least {minimum} ms")


@RULES.rule(
    "path.producer-gives-up",
    condition="the producer's timeouts are limited; with Connect's default of max.block.ms a task can block forever",
    remedy="run `outbox apply`; if the check still fails, lower connector.delivery_timeout_ms and run it again",
)
def _producer_gives_up(state: LiveState) -> Finding:
    config, expected = state.config, f"{MAX_BLOCK_MS_LIMIT} ms at most"
    if config is None:
        return Finding(None, NO_CONFIG, expected)
    block_ms, delivery_ms = producer_setting(config, "max.block.ms"), producer_setting(config, "delivery.timeout.ms")
    block_text = "unlimited" if block_ms == PRODUCER_DEFAULTS["max.block.ms"] else f"{block_ms} ms"
    actual = f"max.block.ms {block_text}, delivery.timeout.ms {delivery_ms} ms"
    return Finding(max(block_ms, delivery_ms) <= MAX_BLOCK_MS_LIMIT, actual, expected)
