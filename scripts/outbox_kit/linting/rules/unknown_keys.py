"""Rule against connector keys that no plugin defines. Connect accepts any key, so a typo leaves the default."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping

from outbox_kit.connector_config import settings_under, split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRule, LintRules, violation
from outbox_kit.linting.rules.aggregate_keys import AGGREGATE_KEYS
from outbox_kit.rules import Finding

Definitions = Callable[[str], Collection[str] | None]
"""Keys that a plugin class defines; None where the worker has no such class."""

# Debezium 3.7 reads these without defining them. Each connector's definition includes the keys of Connect.
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
# Prefixes of keys for a client, a driver or an extension that defines none; and of outbox-kit's own.
PASSED_THROUGH = (
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


def unknown_keys_rule(definitions: Definitions) -> LintRule:
    """Return the rule for the plugin definitions of a worker."""
    rules = LintRules()

    @rules.rule(
        "unknown-keys",
        "every key of the config is one that Connect, the connector, a transform, a predicate or a converter defines "
        "(with `--connect`)",
        reason="a misspelt key passes Connect's validation, and the default remains in force",
    )
    def check(lint_input: LintInput) -> Iterator[Finding]:
        for keys in (_connector, _steps, _converters):
            yield from keys(lint_input.config, definitions)

    return rules[0]


def _connector(config: Mapping[str, str], definitions: Definitions) -> Iterator[Finding]:
    named = [f"{name}." for key in NAMED_PREFIXES for name in split_list(config.get(key, ""))]
    prefixes = ("transforms.", "predicates.", *(f"{key}." for key in CONVERTERS), *PASSED_THROUGH, *named)
    keys = {key for key in config if not key.startswith(prefixes)}
    yield from _unknown("", keys, config.get("connector.class"), definitions, UNDEFINED)


def _steps(config: Mapping[str, str], definitions: Definitions) -> Iterator[Finding]:
    for kind in ("transforms", "predicates"):
        for alias in split_list(config.get(kind, "")):
            prefix = f"{kind}.{alias}."
            settings = settings_under(config, prefix)
            # lint.route.keys checks keys that contain the name of an aggregate.
            has_aggregates = settings.get("type") in AGGREGATE_KEYS
            keys = {key for key in settings if not (has_aggregates and key.startswith("aggregate."))}
            yield from _unknown(prefix, keys, settings.get("type"), definitions, STEP_KEYS)


def _converters(config: Mapping[str, str], definitions: Definitions) -> Iterator[Finding]:
    """Check the keys of converters, and of the delegate of BinaryDataConverter."""
    for name in CONVERTERS:
        settings = {key: value for key, value in settings_under(config, f"{name}.").items() if key != "plugin.version"}
        keys = {key for key in settings if not key.startswith(f"{DELEGATE}.")}
        yield from _unknown(f"{name}.", keys, config.get(name), definitions, {DELEGATE, "type"})
        prefix = f"{name}.{DELEGATE}."
        yield from _unknown(prefix, set(settings_under(config, prefix)), settings.get(DELEGATE), definitions, set())


def _unknown(
    prefix: str, keys: Collection[str], plugin: str | None, definitions: Definitions, extra: Collection[str]
) -> Iterator[Finding]:
    """Yield keys that neither the plugin nor `extra` has. A plugin that defines none may read any key."""
    if plugin is None:
        return
    defined = definitions(plugin)
    if defined is None:
        remedy = "correct the class, or install the plugin on the worker; see docs/smt.md"
        yield violation(f"{prefix or 'connector.class: '}{plugin} is not installed", "a plugin of the worker", remedy)
        return
    known = sorted({*defined, *extra})
    for key in sorted(set(keys) - set(known)) if defined else ():
        near = difflib.get_close_matches(key, known, n=1)
        remedy = f"did you mean {prefix}{near[0]}?" if near else "leave it out"
        yield violation(f"{prefix}{key}: {plugin.rsplit('.', 1)[-1]} has no such key", "a key that is defined", remedy)
