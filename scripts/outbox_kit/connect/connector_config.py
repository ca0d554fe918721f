"""Parse a connector config: its lists, transforms, routes and producer settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ROUTER = "io.outboxkit.smt.OutboxRouter"
EVENT_ROUTER = "io.debezium.transforms.outbox.EventRouter"
ROUTE_BY_FIELD = "io.outboxkit.smt.RouteByField"
SET_PARTITION = "io.outboxkit.smt.SetPartition"
PARSE_PAYLOAD = "io.outboxkit.smt.ParsePayload"
REGEX_ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
VALUE_TO_KEY = "org.apache.kafka.connect.transforms.ValueToKey"
ROUTE_OPTIONS = ("topic", "partitions", "partition.field")
MESSAGE_PREFIXES = "message.prefix.include.list"  # set only if events are logical decoding messages

# Connect replaces ${provider:path:key} and ${provider:key} (ConfigTransformer.DEFAULT_PATTERN).
PLACEHOLDER = re.compile(r"\$\{[A-Za-z0-9_.-]+:[^{}]*\}")
ROUTED_BY_VALUE = "${routedByValue}"
GROUP_REFERENCE = re.compile(r"\$\{?(\d+|[A-Za-z]\w*)\}?")

MAX_BLOCK_MS_LIMIT = 600_000  # a higher limit hides an outage: connectors stay RUNNING while producers block
# Defaults for a connector's producer, which come from Kafka (ProducerConfig) or Connect (Worker.baseProducerProps).
PRODUCER_DEFAULTS = {
    "max.request.size": 1_048_576,
    "buffer.memory": 33_554_432,
    "batch.size": 16_384,
    "linger.ms": 0,
    "request.timeout.ms": 30_000,
    "delivery.timeout.ms": 2_147_483_647,
    "max.block.ms": 2**63 - 1,
}
MAX_MESSAGE_BYTES = 1_048_576  # Kafka's default of max.message.bytes, without 12 bytes of log overhead


@dataclass(frozen=True)
class Transform:
    """One transform of the chain: alias, Java class, and settings without the prefix `transforms.ALIAS.`."""

    alias: str
    class_name: str
    settings: Mapping[str, str]

    @property
    def prefix(self) -> str:
        return f"transforms.{self.alias}."

    @property
    def aggregates(self) -> list[str]:
        """Aggregate types in the setting `aggregates` of an outbox-kit transform."""
        return split_list(self.settings.get("aggregates", ""))


@dataclass(frozen=True)
class SchemaVersion:
    """Schema version of an aggregate type. `id` is the registry's id; `text` is None if the config lacks the schema."""

    label: str
    id: str
    text: str | None


@dataclass(frozen=True)
class Route:
    """Topic for an aggregate type, or for all types if `aggregate` is empty. `key` is the setting with the topic."""

    aggregate: str
    topic: str
    key: str
    partitions: str | None = None  # number of partitions, as in the config
    partition_field: str | None = None


def split_list(text: str) -> list[str]:
    """Split a comma-separated list and trim its items."""
    return [item.strip() for item in text.split(",") if item.strip()]


def split_pairs(text: str) -> dict[str, str]:
    """Parse a comma-separated list of NAME:VALUE. Entries without a name are skipped."""
    return {name: value for name, _, value in (item.rpartition(":") for item in split_list(text)) if name}


def settings_under(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings whose key begins with `prefix`, with the prefix removed."""
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def parse_int(text: str | None, default: int = 0) -> int:
    """Parse an integer, or return `default` if `text` is missing or malformed. Connect rejects malformed values."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text.strip()) else default


def producer_setting(config: Mapping[str, str], key: str) -> int:
    """Return `producer.override.KEY` of a connector config, or the default of this producer setting."""
    return parse_int(config.get(f"producer.override.{key}"), PRODUCER_DEFAULTS[key])


def schema_texts(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the key and value of each setting that is probably an Avro schema: JSON text that contains `"type"`."""
    for key, value in config.items():
        if value.startswith(("{", "[")) and '"type"' in value and parse_json(value) is not None:
            yield key, value


def parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON text; return None if it is invalid."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def transforms(config: Mapping[str, str]) -> list[Transform]:
    """Return the chain of transforms, in order."""
    return [
        Transform(alias, settings.get("type", ""), settings)
        for alias in split_list(config.get("transforms", ""))
        for settings in [settings_under(config, f"transforms.{alias}.")]
    ]


def outbox_router(config: Mapping[str, str]) -> Transform | None:
    """Return the first OutboxRouter in the chain of transforms; None if the chain does not contain an OutboxRouter."""
    return next((transform for transform in transforms(config) if transform.class_name == ROUTER), None)


def schema_versions(transform: Transform, aggregate: str) -> list[SchemaVersion]:
    """Return the schema versions for an aggregate type in the order of the config, which lists the latest first."""
    prefix = f"aggregate.{aggregate}.schema."
    settings = transform.settings
    return [
        SchemaVersion(label, settings.get(f"{prefix}{label}.id", ""), settings.get(prefix + label))
        for label in split_list(settings.get(f"{prefix}versions", ""))
    ]


def routes(config: Mapping[str, str], aggregates: Iterable[str]) -> list[Route]:
    """Return the routes that the config defines. An EventRouter defines one route for each type in `aggregates`."""
    chain = transforms(config)
    result: list[Route] = []
    for transform in chain:
        if transform.class_name == ROUTER:
            result += router_routes(transform)
        elif transform.class_name == EVENT_ROUTER:
            result += _event_router_routes(transform, aggregates)
        elif transform.class_name == ROUTE_BY_FIELD:
            result += _field_routes(transform, chain)
    return result or list(_renamed_routes(config, chain))


def router_routes(router: Transform) -> Iterator[Route]:
    """Yield the routes of an OutboxRouter. Aggregate types without a topic are omitted."""
    settings = router.settings
    for name in router.aggregates:
        key = f"aggregate.{name}"
        topic, partitions, field = (settings.get(f"{key}.{option}") for option in ROUTE_OPTIONS)
        if topic is not None:
            yield Route(name, topic, f"{router.prefix}{key}", partitions, field)


def _event_router_routes(transform: Transform, aggregates: Iterable[str]) -> Iterator[Route]:
    """Yield the routes of Debezium's EventRouter, whose pattern and replacement define the topic for each type."""
    pattern = transform.settings.get("route.topic.regex", "(?<routedByValue>.*)")
    replacement = transform.settings.get("route.topic.replacement", f"outbox.event.{ROUTED_BY_VALUE}")
    for name in aggregates:
        topic = _replace(pattern, replacement, name)
        if topic is not None:
            yield Route(name, topic, f"{transform.prefix}route.topic.replacement")


def _field_routes(transform: Transform, chain: list[Transform]) -> Iterator[Route]:
    """Yield the routes of RouteByField. SetPartition defines the number of partitions and the partition field."""
    steps = [step.settings for step in chain if step.class_name == SET_PARTITION]
    for name, topic in split_pairs(transform.settings.get("topics", "")).items():
        settings = next((entry for entry in steps if topic in split_pairs(entry.get("topic.partitions", ""))), None)
        settings = settings or next((entry for entry in steps if "partitions" in entry), {})
        count = split_pairs(settings.get("topic.partitions", "")).get(topic, settings.get("partitions"))
        field = settings.get("field", "key")
        column = field.removeprefix("value.") if field.startswith("value.") else None
        yield Route(name, topic, f"{transform.prefix}topics: {name}", count, column)


def _renamed_routes(config: Mapping[str, str], chain: list[Transform]) -> Iterator[Route]:
    """Yield the route to the table's topic, which the RegexRouters rename; yield nothing if there is no RegexRouter."""
    routers = [transform for transform in chain if transform.class_name == REGEX_ROUTER]
    topic: str | None = f"{config.get('topic.prefix', '')}.{config.get('table.include.list', '')}"
    for transform in routers:
        pattern, replacement = transform.settings.get("regex", ""), transform.settings.get("replacement", "")
        if topic is not None:
            topic = _replace(pattern, replacement, topic)
        if topic is None and "$" not in replacement:
            topic = replacement
    if routers and topic is not None:
        yield Route("", topic, f"{routers[-1].prefix}replacement")


def _replace(pattern: str, replacement: str, text: str) -> str | None:
    """Return the name to which RegexRouter renames topic `text`; None if Python cannot evaluate the pattern."""
    try:
        compiled = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern))
        if compiled.fullmatch(text) is None:
            return text
        return compiled.sub(
            lambda match: GROUP_REFERENCE.sub(lambda group: _group_text(match, group[1]), replacement), text, count=1
        )
    except (re.error, IndexError):
        return None


def _group_text(match: re.Match[str], name: str) -> str:
    return match[int(name) if name.isdigit() else name] or ""
