"""Where a rendered config sends records: topic and partition count of each aggregate type, as far as it can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from outbox_kit.connector_config import (
    EVENT_ROUTER,
    REGEX_ROUTER,
    ROUTE_BY_FIELD,
    ROUTER,
    SET_PARTITION,
    Transform,
    items,
    named,
)
from outbox_kit.linting.lint_input import Target

ROUTED_BY = "${routedByValue}"
GROUP = re.compile(r"\$\{?(\d+|[A-Za-z]\w*)\}?")


@dataclass(frozen=True)
class Route:
    """Records of one aggregate type (empty: of every type) go to `topic`; `key` is the setting that says so."""

    aggregate: str
    topic: str
    key: str
    partitions: str | None = None
    partition_field: str | None = None


def routes(target: Target) -> list[Route]:
    """Every route that can be decided from the config alone."""
    found: list[Route] = []
    for transform in target.transforms:
        if transform.kind == ROUTER:
            found += _router(transform)
        elif transform.kind == EVENT_ROUTER:
            found += _event_router(target, transform)
        elif transform.kind == ROUTE_BY_FIELD:
            found += _by_field(target, transform)
    return found or list(_renamed(target))


def _router(transform: Transform) -> Iterator[Route]:
    for name in items(transform.settings.get("aggregates", "")):
        where = f"aggregate.{name}"
        topic = transform.settings.get(f"{where}.topic")
        if topic is not None:
            yield Route(
                name,
                topic,
                f"transforms.{transform.alias}.{where}",
                transform.settings.get(f"{where}.partitions"),
                transform.settings.get(f"{where}.partition.field"),
            )


def _event_router(target: Target, transform: Transform) -> Iterator[Route]:
    """Debezium's EventRouter: one topic per aggregate type, by a pattern."""
    pattern = transform.settings.get("route.topic.regex", "(?<routedByValue>.*)")
    replacement = transform.settings.get("route.topic.replacement", f"outbox.event.{ROUTED_BY}")
    for name in target.pipeline.routed:
        topic = _replace(pattern, replacement, name)
        if topic is not None:
            yield Route(name, topic, f"transforms.{transform.alias}.route.topic.replacement")


def _by_field(target: Target, transform: Transform) -> Iterator[Route]:
    """The chain: topics by RouteByField, partitions of each by SetPartition."""
    placing = [step.settings for step in target.transforms if step.kind == SET_PARTITION]
    for name, topic in named(transform.settings.get("topics", "")).items():
        own = next((step for step in placing if topic in named(step.get("topic.partitions", ""))), None)
        own = own or next((step for step in placing if "partitions" in step), {})
        count = named(own.get("topic.partitions", "")).get(topic, own.get("partitions"))
        field = own.get("field", "key")
        column = field.removeprefix("value.") if field.startswith("value.") else None
        yield Route(name, topic, f"transforms.{transform.alias}.topics: {name}", count, column)


def _renamed(target: Target) -> Iterator[Route]:
    """A chain without a router of types: Debezium's own topic of the table, renamed by each RegexRouter."""
    routers = [transform for transform in target.transforms if transform.kind == REGEX_ROUTER]
    topic: str | None = f"{target.config.get('topic.prefix', '')}.{target.config.get('table.include.list', '')}"
    for transform in routers:
        pattern, replacement = transform.settings.get("regex", ""), transform.settings.get("replacement", "")
        if topic is not None:
            topic = _replace(pattern, replacement, topic)
        if topic is None and "$" not in replacement:
            topic = replacement
    if routers and topic is not None:
        yield Route("", topic, f"transforms.{routers[-1].alias}.replacement")


def _replace(pattern: str, replacement: str, text: str) -> str | None:
    """What Java's `matches` and `replaceFirst` make of `text`; None where Python cannot tell."""
    try:
        compiled = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern))
        if compiled.fullmatch(text) is None:
            return text
        return compiled.sub(lambda match: GROUP.sub(lambda group: _group(match, group[1]), replacement), text, count=1)
    except (re.error, IndexError):
        return None


def _group(match: re.Match[str], name: str) -> str:
    return match[int(name) if name.isdigit() else name] or ""
