"""Reading a rendered connector config: transforms, lists, numbers, placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ROUTER = "io.outboxkit.smt.OutboxRouter"
EVENT_ROUTER = "io.debezium.transforms.outbox.EventRouter"
ROUTE_BY_FIELD = "io.outboxkit.smt.RouteByField"
SET_PARTITION = "io.outboxkit.smt.SetPartition"
PARSE_PAYLOAD = "io.outboxkit.smt.ParsePayload"
REGEX_ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
MESSAGES = "message.prefix.include.list"  # only in the variant without a table
VALUE_TO_KEY = "org.apache.kafka.connect.transforms.ValueToKey"

# ${provider:path:key} or ${provider:key}, what Connect replaces (ConfigTransformer.DEFAULT_PATTERN).
PLACEHOLDER = re.compile(r"\$\{[A-Za-z0-9_.-]+:[^{}]*\}")


@dataclass(frozen=True)
class Transform:
    """One transform of the chain: its alias, class, and settings without the prefix."""

    alias: str
    kind: str
    settings: Mapping[str, str]


def items(text: str) -> list[str]:
    """A comma separated list of Connect."""
    return [item.strip() for item in text.split(",") if item.strip()]


def named(text: str) -> dict[str, str]:
    """A list of NAME:VALUE, as our transforms take it."""
    return {name: value for name, _, value in (item.rpartition(":") for item in items(text)) if name}


def under(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Settings whose key begins with `prefix`, without it."""
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def transforms(config: Mapping[str, str]) -> list[Transform]:
    """The chain, in its order."""
    return [
        Transform(alias, settings.get("type", ""), settings)
        for alias in items(config.get("transforms", ""))
        for settings in [under(config, f"transforms.{alias}.")]
    ]


def number(text: str | None, default: int) -> int:
    """A whole number; `default` where there is none, for Connect itself refuses what is no number."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text.strip()) else default


def schema_texts(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Keys whose value is an Avro schema as JSON text."""
    for key, value in config.items():
        if value.startswith(("{", "[")) and '"type"' in value and _is_json(value):
            yield key, value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True
