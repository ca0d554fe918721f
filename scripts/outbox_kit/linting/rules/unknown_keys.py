"""Rule against connector keys that no plugin defines. Connect accepts any key, so a typo has no effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from outbox_kit.connector_config import settings_under, split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRule, LintRules, suggestion, violation
from outbox_kit.linting.rules.aggregate_keys import AGGREGATE_KEYS
from outbox_kit.rules import Finding

Definitions = Callable[[str], Collection[str] | None]
"""Function that returns the keys that a plugin class defines, None if the class is not installed on the worker."""

# Keys that Debezium 3.7 reads but does not define. The definitions of a connector include the keys of Connect.
UNDEFINED_KEYS = {
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
# Prefixes of keys that no plugin defines: keys of clients, drivers and extensions, and keys of outbox-kit.
UNCHECKED_PREFIXES = (
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
# Keys whose value is a list of aliases. An alias is the prefix of other keys.
ALIAS_LISTS = ("converters", "post.processors")
CONVERTERS = ("key.converter", "value.converter", "header.converter")
DELEGATE = "delegate.converter.type"
TRANSFORM_KEYS = {"type", "plugin.version", "predicate", "negate"}


def unknown_keys_rule(definitions: Definitions) -> LintRule:
    """Return the rule for the plugins of one worker."""
    rules = LintRules()

    @rules.rule(
        "unknown-keys",
        "every key of the config is defined by Connect, the connector, a transform, a predicate or a converter "
        "(only with `--connect`)",
        reason="Connect accepts a misspelt key, and uses the default of the correct key",
    )
    def check(lint_input: LintInput) -> Iterator[Finding]:
        for violations in (_connector_keys, _transform_keys, _converter_keys):
            yield from violations(lint_input.config, definitions)

    return rules[0]


def _connector_keys(config: Mapping[str, str], definitions: Definitions) -> Iterator[Finding]:
    alias_prefixes = [f"{name}." for key in ALIAS_LISTS for name in split_list(config.get(key, ""))]
    prefixes = ("transforms.", "predicates.", *(f"{key}." for key in CONVERTERS), *UNCHECKED_PREFIXES, *alias_prefixes)
    keys = {key for key in config if not key.startswith(prefixes)}
    yield from _unknown_keys("", keys, config.get("connector.class"), definitions, UNDEFINED_KEYS)


def _transform_keys(config: Mapping[str, str], definitions: Definitions) -> Iterator[Finding]:
    for kind in ("transforms", "predicates"):
        for alias in split_list(config.get(kind, "")):
            prefix = f"{kind}.{alias}."
            settings = settings_under(config, prefix)
            # lint.route.keys checks keys that contain the name of an aggregate.
            has_aggregates = settings.get("type") in AGGREGATE_KEYS
            keys = {key for key in settings if not (has_aggregates and key.startswith("aggregate."))}
            yield from _unknown_keys(prefix, keys, settings.get("type"), definitions, TRANSFORM_KEYS)


def _converter_keys(config: Mapping[str, str], definitions: Definitions) -> Iterator[Finding]:
    """Check the keys of the converters and of BinaryDataConverter's delegate."""
    for name in CONVERTERS:
        settings = {key: value for key, value in settings_under(config, f"{name}.").items() if key != "plugin.version"}
        keys = {key for key in settings if not key.startswith(f"{DELEGATE}.")}
        yield from _unknown_keys(f"{name}.", keys, config.get(name), definitions, {DELEGATE, "type"})
        prefix = f"{name}.{DELEGATE}."
        yield from _unknown_keys(
            prefix, set(settings_under(config, prefix)), settings.get(DELEGATE), definitions, set()
        )


def _unknown_keys(
    prefix: str, keys: Collection[str], plugin: str | None, definitions: Definitions, extra: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding for each key that neither the plugin nor `extra` defines. An empty definition allows any key."""
    if plugin is None:
        return
    defined = definitions(plugin)
    if defined is None:
        remedy = "correct the class, or install the plugin on the worker; see docs/smt.md"
        yield violation(f"{prefix or 'connector.class: '}{plugin} is not installed", "a plugin of the worker", remedy)
        return
    known_keys = {*defined, *extra}
    for key in sorted(set(keys) - known_keys) if defined else ():
        actual = f"{prefix}{key}: {plugin.rsplit('.', 1)[-1]} has no such key"
        yield violation(actual, "a key that is defined", suggestion(key, known_keys, prefix))
