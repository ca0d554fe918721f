"""Connector keys that no plugin knows. Connect takes any key: a typo passes its validation, and the default rules."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping

from outbox_kit.connector_config import items, under
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, Rule, rule
from outbox_kit.linting.rules.router_schemas import AGGREGATE_KEYS

Definitions = Callable[[str], Collection[str] | None]
"""Keys that a plugin class defines; None where the worker has no such class."""

# Debezium 3.7 reads them without defining them; those of Connect are in each connector's definition.
UNDEFINED = {
    "money.fraction.digits",
    "offset.mismatch.strategy",
    "poll.dispatch.interval.ms",
    "queue.provider.type",
    "read.only",
    "topic.cache.size",
    "topic.delimiter",
    "topic.heartbeat.name",
    "topic.heartbeat.prefix",
    "topic.transaction",
}
# Passed on to a client, a driver or an extension that does not say what it knows; and the kit's own.
PASSED_ON = (
    "producer.override.",
    "admin.override.",
    "consumer.override.",
    "topic.creation.",
    "driver.",
    "internal.",
    "outboxkit.",
    "signal.consumer.",
    "column.mask.",
    "column.truncate.",
    "snapshot.select.statement.overrides.",
)
# Lists whose items are prefixes of keys.
NAMED_PREFIXES = ("converters", "post.processors")
CONVERTERS = ("key.converter", "value.converter", "header.converter")
DELEGATE = "delegate.converter.type"
STEP_KEYS = {"type", "plugin.version", "predicate", "negate"}


def unknown_keys_rule(definitions: Definitions) -> Rule:
    """The rule, by the definitions of a worker's plugins."""

    def look(target: Target) -> Iterator[Finding]:
        for keys in (_connector, _steps, _converters):
            yield from keys(target, definitions)

    return rule(
        "unknown-keys",
        "every key of the config is one that Connect, the connector, a transform, a predicate or a converter defines "
        "(with `--connect`)",
        why="a misspelt key passes Connect's validation, and the default rules in its place",
    )(look)


def _connector(target: Target, definitions: Definitions) -> Iterator[Finding]:
    """Keys of the connector itself."""
    named = [f"{name}." for key in NAMED_PREFIXES for name in items(target.config.get(key, ""))]
    others = ("transforms.", "predicates.", *(f"{converter}." for converter in CONVERTERS), *PASSED_ON, *named)
    own = {key for key in target.config if not key.startswith(others)}
    yield from _unknown("", own, target.config.get("connector.class"), definitions, UNDEFINED)


def _steps(target: Target, definitions: Definitions) -> Iterator[Finding]:
    """Keys of transforms and predicates."""
    for kind in ("transforms", "predicates"):
        for alias in items(target.config.get(kind, "")):
            where = f"{kind}.{alias}."
            settings = under(target.config, where)
            own = {key for key in settings if not _is_dynamic(settings, key)}
            yield from _unknown(where, own, settings.get("type"), definitions, STEP_KEYS)


def _is_dynamic(settings: Mapping[str, str], key: str) -> bool:
    """Keys of our transforms that have the name of an aggregate in them; lint.route.keys sees to those."""
    return key.startswith("aggregate.") and settings.get("type") in AGGREGATE_KEYS


def _converters(target: Target, definitions: Definitions) -> Iterator[Finding]:
    """Keys of converters, and of the one that BinaryDataConverter hands other records to."""
    for name in CONVERTERS:
        settings = {key: value for key, value in under(target.config, f"{name}.").items() if key != "plugin.version"}
        own = {key for key in settings if not key.startswith(f"{DELEGATE}.")}
        yield from _unknown(f"{name}.", own, target.config.get(name), definitions, {DELEGATE, "type"})
        where = f"{name}.{DELEGATE}."
        yield from _unknown(where, set(under(target.config, where)), settings.get(DELEGATE), definitions, set())


def _unknown(
    where: str, keys: Collection[str], plugin: str | None, definitions: Definitions, besides: Collection[str]
) -> Iterator[Finding]:
    """Those of `keys` that neither the plugin nor `besides` has. One that defines nothing reads keys by itself."""
    if plugin is None:
        return
    defined = definitions(plugin)
    if defined is None:
        remedy = "correct the class, or install the plugin on the worker; see docs/smt.md"
        yield Finding(f"{where or 'connector.class: '}{plugin} is not on the worker", "a plugin of the worker", remedy)
        return
    known = sorted({*defined, *besides})
    for key in sorted(set(keys) - set(known)) if defined else ():
        near = difflib.get_close_matches(key, known, n=1)
        remedy = f"did you mean {where}{near[0]}?" if near else "leave it out"
        yield Finding(f"{where}{key}: {plugin.rsplit('.', 1)[-1]} has no such key", "a key that is defined", remedy)
