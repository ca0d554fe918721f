"""What the live connector config tells OutboxRouter, by aggregate type. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

ROUTER = "OutboxRouter"
TYPE = re.compile(r"transforms\.([^.]+)\.type")


@dataclass(frozen=True)
class Version:
    """One schema version as the config carries it."""

    number: int
    id: int
    text: str


@dataclass(frozen=True)
class Route:
    """Where rows of one aggregate type go."""

    topic: str
    partitions: int
    partition_field: str | None
    versions: list[Version]


def router_prefix(config: dict[str, str]) -> str | None:
    """`transforms.NAME.` of the OutboxRouter; None where the connector uses other transforms."""
    for key, value in config.items():
        found = TYPE.fullmatch(key)
        if found and value.endswith(ROUTER):
            return f"transforms.{found[1]}."
    return None


def routes(config: dict[str, str]) -> dict[str, Route]:
    """By aggregate type; empty where there is no OutboxRouter. What is malformed counts as 0."""
    prefix = router_prefix(config)
    if prefix is None:
        return {}
    names = [name.strip() for name in config.get(f"{prefix}aggregates", "").split(",") if name.strip()]
    return {name: _route(config, f"{prefix}aggregate.{name}.") for name in names}


def _route(config: dict[str, str], prefix: str) -> Route:
    labels = [label.strip() for label in config.get(f"{prefix}schema.versions", "").split(",") if label.strip()]
    return Route(
        topic=config.get(f"{prefix}topic", ""),
        partitions=number(config.get(f"{prefix}partitions")),
        partition_field=config.get(f"{prefix}partition.field"),
        versions=[
            Version(
                number(label),
                number(config.get(f"{prefix}schema.{label}.id")),
                config.get(f"{prefix}schema.{label}", ""),
            )
            for label in labels
        ],
    )


def number(text: str | None, default: int = 0) -> int:
    """A setting as a number; `default` where it is missing or no number."""
    return int(text) if text is not None and text.strip().isdecimal() else default
