"""Check that the live connector config is consistent with the topics, the registry and the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastavro.schema import SchemaParseException, UnknownType
from psycopg import sql

from outbox_events.text import format_size, plural, shortened_list
from outbox_kit.connect.conflicts import slots_of
from outbox_kit.connect.connector_config import (
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
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.verify_queries import set_config
from outbox_kit.pipeline.avro import same_schema, without_docs
from outbox_kit.results.checks import Finding, Rules, Severity
from outbox_kit.results.repair_commands import (
    RECOVER_HINT,
    RESEND_HINT,
    backfill_steps,
    republish_command,
    resend_steps,
)
from outbox_kit.verification.live_state import LiveState

NO_SAMPLE = "the topics could not be read"
NO_CONFIG = "the live connector config could not be read"
NO_ROUTER = "no OutboxRouter"
SEGMENT_BYTES = 2**30  # default in Kafka, which rejects a batch that is larger than a segment
STATUS_INTERVAL_MS = 10_000  # default in Debezium
STATUS_UPDATES_PER_TIMEOUT = 2

MAX_LISTED = 5
SAME_ORDER = "all records of a state topic, or none of them, have the header source_sequence"
# The next record closes the segment, and the log cleaner compacts the segment without delay.
COMPACT_NOW = "segment.ms=1000,min.compaction.lag.ms=0,min.cleanable.dirty.ratio=0.01"
CLEANING = (
    "the log cleaner then removes the records within about log.cleaner.backoff.ms of the broker (15 s by default), and "
    "kafka.topic-settings has the command that restores the settings"
)
UNSEQUENCED_REMEDY = (
    "stop the other producer; run `outbox republish AGGREGATE --key KEY --tombstones`; set "
    f"{COMPACT_NOW} with kafka-configs; run `outbox republish` again; {CLEANING}"
)

RULES = Rules[LiveState]()


@RULES.rule(
    "path.partitions",
    condition="every topic has the partition count of its route; otherwise the task blocks on a missing partition",
    remedy=f"run `outbox apply`, then {RESEND_HINT}; if the topic has more partitions than its route, see "
    "kafka.partitions",
)
def _partitions(state: LiveState) -> Finding:
    config, expected = state.config, "the partition count in the route"
    if config is None or state.kafka.value is None:
        return Finding(None, NO_CONFIG if config is None else "the state of Kafka could not be read", expected)
    router, topics = outbox_router(config), state.kafka.value.actual
    if router is None:
        return Finding(True, NO_ROUTER, expected)
    problems = [
        f"{route.topic} has {topics[route.topic].partitions} partitions; its route has {parse_int(route.partitions)}"
        for route in router_routes(router)
        if route.topic in topics and topics[route.topic].partitions != parse_int(route.partitions)
    ]
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "path.record-size",
    condition="a record of the router's maximum size does not exceed the limits of the producer and the topic",
    remedy="set connector.max_record_bytes, from which all limits are derived, and run `outbox apply`; if the task has "
    "failed, also run `outbox restart`",
)
def _record_size(state: LiveState) -> Finding:
    config, expected = state.config, "max.record.bytes of the router within the limits of producer and topics"
    if config is None or state.kafka.value is None:
        return Finding(None, NO_CONFIG if config is None else "the state of Kafka could not be read", expected)
    router = outbox_router(config)
    record_size = ("max.record.bytes", parse_int(router.settings.get("max.record.bytes")) if router else 0)
    request_size, buffer_size = ((key, producer_setting(config, key)) for key in ("max.request.size", "buffer.memory"))
    limits = [(record_size, request_size), (request_size, buffer_size)]
    for route in router_routes(router) if router else ():
        topic = state.kafka.value.actual.get(route.topic)
        if topic:
            sizes = {"max.message.bytes": MAX_MESSAGE_BYTES, "segment.bytes": SEGMENT_BYTES}
            for key, default in sizes.items():
                limits.append((record_size, (f"{key} of {route.topic}", parse_int(topic.config.get(key), default))))
    problems = [f"{key} {size} > {limit_key} {limit}" for (key, size), (limit_key, limit) in limits if size > limit]
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "path.schema-ids",
    condition="the registry has every schema of the router under the id that the router writes",
    remedy=f"run `outbox apply`; if records have a wrong id, also run {RESEND_HINT}; if the registry lost schemas, "
    "restore them with the ids that existing records contain",
)
def _schema_ids(state: LiveState) -> Finding:
    config, expected = state.config, "registered under the same id, with the same text"
    if config is None or state.registry.value is None:
        return Finding(None, NO_CONFIG if config is None else "the state of the registry could not be read", expected)
    router = outbox_router(config)
    if router is None:
        return Finding(True, NO_ROUTER, expected)
    problems = [
        problem
        for name in router.aggregates
        for version in schema_versions(router, name)
        for problem in _version_problems(state, name, version)
    ]
    remedy = (
        f"run `outbox apply`; if records have a wrong id, {resend_steps(state.deployment.pipeline)}; if the "
        "registry lost schemas, restore them with the ids that existing records contain"
    )
    return Finding(not problems, "; ".join(problems) or expected, expected, remedy)


def _version_problems(state: LiveState, aggregate_type: str, version: SchemaVersion) -> Iterator[str]:
    aggregate = state.deployment.pipeline.routed.get(aggregate_type)
    subject = state.deployment.pipeline.subject_of(aggregate_type)
    registered = state.registered.get((subject, parse_int(version.label)))
    if registered is None:
        yield f"{subject} does not have version {version.label}, which the router uses"
    elif registered.id != parse_int(version.id):
        yield f"{subject} version {version.label} has id {registered.id}, but the router writes {version.id}"
    # Schemas with references are not compared, because their types are inlined in the config but not in the registry.
    elif not (aggregate and aggregate.references) and not _is_same_schema(registered.text, version.text or ""):
        yield f"{subject} version {version.label} differs from the schema of the router"


def _is_same_schema(registered_text: str, configured_text: str) -> bool:
    """Return whether two schemas are equal except for docs. Return False if one of the texts is not a valid schema."""
    try:
        return same_schema(without_docs(registered_text), without_docs(configured_text))
    except (ValueError, SchemaParseException, UnknownType):
        return False


@RULES.rule(
    "path.offset-not-ahead",
    condition="the connector's offset is not beyond the server's WAL; otherwise PostgreSQL skips rows up to the offset",
    remedy=f"the server was restored or promoted without its last WAL: {RECOVER_HINT}",
)
def _offset_not_ahead(state: LiveState) -> Finding:
    expected = "an offset that is not beyond the server's WAL position"
    offset_lsn = state.offset_lsn  # read before state.wal_position
    if state.postgres.value is None or offset_lsn is None:
        return Finding(None, "the state of PostgreSQL or the connector's offset could not be read", expected)
    server_lsn = max(state.wal_position, state.postgres.value.actual.wal_position)
    actual = f"connector's offset at {offset_lsn}, server at {server_lsn}"
    return Finding(offset_lsn <= server_lsn, actual, expected)


@RULES.rule(
    "path.offset-covers-slot",
    condition="the slot is not ahead of the connector's offset; otherwise another client acknowledged rows in between",
    remedy=f"the slot was recreated, advanced, or read by another client: {RECOVER_HINT}",
)
def _offset_covers_slot(state: LiveState) -> Finding:
    expected = "a confirmed LSN of the slot that is not ahead of the connector's offset"
    offset_lsn = state.offset_lsn
    if state.postgres.value is None or offset_lsn is None:
        return Finding(None, "the state of PostgreSQL or the connector's offset could not be read", expected)
    slot = state.postgres.value.actual.slot
    if slot is None or slot.confirmed_flush is None or not offset_lsn:
        return Finding(None, "the slot or the offset does not exist", expected)
    slot_lsn = slot.confirmed_flush
    remedy = (
        f"the slot was recreated, advanced, or read by another client, so the connector has missed rows: {RECOVER_HINT}"
    )
    actual = f"slot at {slot_lsn}, connector's offset at {offset_lsn}"
    return Finding(slot_lsn <= offset_lsn, actual, expected, remedy)


@RULES.rule(
    "path.interrupted",
    condition="the last `apply` or `recover` was completed; it was neither interrupted nor rolled back",
    remedy="if `apply` rolled back a config, correct the files; then run `outbox apply`, or, if a recovery was "
    "interrupted, `outbox recover`",
)
def _interrupted(state: LiveState) -> Finding:
    unfinished, expected = state.lock.unfinished, "no incomplete command in the lock file"
    remedy = RECOVER_HINT if unfinished == "recover" else ""
    return Finding(unfinished is None, f"not completed: {unfinished}" if unfinished else expected, expected, remedy)


@RULES.rule(
    "path.empty-topics",
    condition="no state topic is empty although the `backfill` query of its type returns a state",
    remedy="run `outbox backfill --restart` for the aggregate types",
)
def _empty_topics(state: LiveState) -> Finding:
    names, error = state.unsent_types.value, state.unsent_types.error
    expected = "records on every topic for which `backfill` returns a state"
    if names is None or not _has_sample(state):
        message, hint = (error.message, error.hint) if error else (NO_SAMPLE, "")
        return Finding(None, message, expected, hint)
    actual = f"no record: {', '.join(names)}" if names else expected
    return Finding(not names, actual, expected, backfill_steps(state.deployment.pipeline, names))


@RULES.rule(
    "kafka.source-sequence",
    condition=f"{SAME_ORDER}, because Spark jobs reject a topic with both kinds (checked for the oldest and the newest "
    "records)",
    remedy=UNSEQUENCED_REMEDY,
    severity=Severity.WARNING,
)
def _source_sequence(state: LiveState) -> Finding:
    if state.kafka.value is None or not _has_sample(state):
        return Finding(None, NO_SAMPLE, SAME_ORDER)
    found = {name: records.keys for name, records in state.kafka.value.unsequenced.items()}
    return unsequenced_finding(state.deployment, found)


def _has_sample(state: LiveState) -> bool:
    return state.kafka.value is not None and state.kafka.value.misplaced_keys is not None


def unsequenced_finding(deployment: Deployment, found: Mapping[str, Mapping[tuple[int, int], str]]) -> Finding:
    """Return the finding for records without source_sequence. `found` maps topics and places to the records' keys."""
    pipeline = deployment.pipeline
    keys = {name: found.get(pipeline.topic_of(name), {}) for name in pipeline.aggregates}
    records = [
        f"{pipeline.topic_of(name)} {partition}/{offset} ({key})"
        for name, places in keys.items()
        for (partition, offset), key in places.items()
    ]
    remedies = [_remove_records(deployment, name, list(places.values())) for name, places in keys.items() if places]
    actual = f"{plural(len(records), 'record')} without source_sequence: {shortened_list(records, MAX_LISTED)}"
    remedy = f"stop the other producer; {'; '.join(remedies)}; {CLEANING}"
    refused = {entry.aggregate for entry in pipeline.materializations if entry.unsequenced_records == "refuse"}
    severity = Severity.ERROR if any(keys.get(name) for name in refused) else None
    return Finding(not records, actual if records else SAME_ORDER, SAME_ORDER, remedy, severity)


def _remove_records(deployment: Deployment, name: str, keys: list[str]) -> str:
    """Return the commands after which compaction removes the records of the first keys."""
    pipeline = deployment.pipeline
    command = f"run `{republish_command(name, list(dict.fromkeys(keys))[:MAX_LISTED])} --tombstones`"
    write = command if pipeline.aggregates[name].backfill else f"have the service write states of these {name} keys"
    settings = set_config(deployment.environment.kafka, pipeline.topic_of(name), COMPACT_NOW)
    return f"{write}; run {settings}; {write} again"


@RULES.rule(
    "path.unread-slots",
    condition="in the database, every other pgoutput slot that retains WAL is read by a connector in this Connect "
    "cluster; WAL for an unread slot, such as the slot of a deleted connector, fills the disk",
    remedy="if no other pipeline or client needs the slot, run `select pg_drop_replication_slot(...)`",
    severity=Severity.WARNING,
)
def _unread_slots(state: LiveState) -> Finding:
    expected, database, connect = "no other slot without a connector", state.postgres.value, state.connect.value
    if database is None or connect is None or "connectors" in connect.observed.errors:
        return Finding(None, "the slots or the connectors could not be read", expected)
    used_slots = slots_of(connect.observed.actual.other_connectors.values())
    sizes = {name: size for name, size in sorted(database.additional.unread_slots.items()) if name not in used_slots}
    actual = ", ".join(f"{name} retains {format_size(size)} of WAL" for name, size in sizes.items())
    statements = [
        sql.SQL("select pg_drop_replication_slot({})").format(sql.Literal(name)).as_string(None) for name in sizes
    ]
    commands = " and ".join(f"`{statement}`" for statement in statements)
    remedy = f"if no other pipeline, subscription or client needs a slot, run {commands}"
    return Finding(not sizes, actual or expected, expected, remedy)


@RULES.rule(
    "path.wal-sender-timeout",
    condition="the connector acknowledges WAL within wal_sender_timeout; otherwise the server closes the connection",
    remedy="increase wal_sender_timeout for the connector's role, or decrease status.update.interval.ms",
)
def _wal_sender_timeout(state: LiveState) -> Finding:
    config, database = state.config, state.postgres.value
    if config is None or database is None:
        reason = NO_CONFIG if config is None else "the state of PostgreSQL could not be read"
        return Finding(None, reason, "wal_sender_timeout 0, or at least twice the acknowledgement interval")
    interval_ms = parse_int(config.get("status.update.interval.ms"), STATUS_INTERVAL_MS)
    timeout_ms, minimum_ms = database.additional.sender_timeout_ms, STATUS_UPDATES_PER_TIMEOUT * interval_ms
    actual = f"wal_sender_timeout {timeout_ms} ms, an acknowledgement every {interval_ms} ms"
    role = sql.Identifier(state.deployment.environment.source.connector.user).as_string(None)
    remedy = f"run `alter role {role} set wal_sender_timeout = '{minimum_ms} ms'`, then `outbox restart`"
    passed = timeout_ms == 0 or timeout_ms >= minimum_ms
    return Finding(passed, actual, f"wal_sender_timeout 0, or >= {minimum_ms} ms", remedy)


@RULES.rule(
    "path.producer-gives-up",
    condition="the producer's timeouts are limited; with Connect's default for max.block.ms, a task can block forever",
    remedy="run `outbox apply`; if the check still fails, decrease connector.delivery_timeout_ms and apply again",
)
def _producer_gives_up(state: LiveState) -> Finding:
    config, expected = state.config, f"{MAX_BLOCK_MS_LIMIT} ms at most"
    if config is None:
        return Finding(None, NO_CONFIG, expected)
    block_ms, delivery_ms = producer_setting(config, "max.block.ms"), producer_setting(config, "delivery.timeout.ms")
    block_text = "unlimited" if block_ms == PRODUCER_DEFAULTS["max.block.ms"] else f"{block_ms} ms"
    actual = f"max.block.ms {block_text}, delivery.timeout.ms {delivery_ms} ms"
    return Finding(max(block_ms, delivery_ms) <= MAX_BLOCK_MS_LIMIT, actual, expected)
