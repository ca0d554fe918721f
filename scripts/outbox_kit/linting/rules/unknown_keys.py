"""Define the rule that rejects connector keys that no plugin defines. Connect accepts and ignores these keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from outbox_kit.connect.connector_config import settings_under, split_list
from outbox_kit.linting.lint_rule import LintInput, LintRule, LintRules, suggestion, violation
from outbox_kit.linting.rules.aggregate_keys import AGGREGATE_KEY_PATTERNS
from outbox_kit.results.checks import Finding

DefinedKeys = Callable[[str], Collection[str] | None]
"""Function that returns the keys that a plugin class defines, or None if the worker does not have the class."""

# Keys that Debezium 3.7 reads but does not define. The defined keys of each connector include the keys of Connect.
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
# Prefixes of keys that plugins do not define individually: keys of clients, drivers, tables, extensions and outbox-kit.
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
# Keys whose value is a list of aliases. The alias is part of the prefix of its settings.
ALIAS_LIST_KEYS = ("converters", "post.processors")
CONVERTERS = ("key.converter", "value.converter", "header.converter")
DELEGATE_KEY = "delegate.converter.type"
COMMON_TRANSFORM_KEYS = {"type", "plugin.version", "predicate", "negate"}


def unknown_keys_rule(defined_keys_of: DefinedKeys) -> LintRule:
    """Return the rule that compares the config with the plugins of one worker."""
    rules = LintRules()

    @rules.rule(
        "unknown-keys",
        "every key of the config is defined by Connect, the connector, a transform, a predicate or a converter "
        "(only with `--connect`)",
        reason="Connect accepts a misspelled key, and uses the default of the correct key",
    )
    def check(lint_input: LintInput) -> Iterator[Finding]:
        for check_keys in (_check_connector_keys, _check_transform_keys, _check_converter_keys):
            yield from check_keys(lint_input.config, defined_keys_of)

    return rules[0]


def _check_connector_keys(config: Mapping[str, str], defined_keys_of: DefinedKeys) -> Iterator[Finding]:
    alias_prefixes = [f"{name}." for key in ALIAS_LIST_KEYS for name in split_list(config.get(key, ""))]
    prefixes = ("transforms.", "predicates.", *(f"{key}." for key in CONVERTERS), *UNCHECKED_PREFIXES, *alias_prefixes)
    keys = {key for key in config if not key.startswith(prefixes)}
    yield from _check_keys("", keys, config.get("connector.class"), defined_keys_of, UNDEFINED_KEYS)


def _check_transform_keys(config: Mapping[str, str], defined_keys_of: DefinedKeys) -> Iterator[Finding]:
    for kind in ("transforms", "predicates"):
        for alias in split_list(config.get(kind, "")):
            prefix = f"{kind}.{alias}."
            settings = settings_under(config, prefix)
            # The rule lint.route.keys checks `aggregate.*` keys, which contain names.
            has_aggregates = settings.get("type") in AGGREGATE_KEY_PATTERNS
            keys = {key for key in settings if not (has_aggregates and key.startswith("aggregate."))}
            yield from _check_keys(prefix, keys, settings.get("type"), defined_keys_of, COMMON_TRANSFORM_KEYS)


def _check_converter_keys(config: Mapping[str, str], defined_keys_of: DefinedKeys) -> Iterator[Finding]:
    """Check the keys of the converters and of BinaryDataConverter's delegate."""
    for name in CONVERTERS:
        settings = {key: value for key, value in settings_under(config, f"{name}.").items() if key != "plugin.version"}
        keys = {key for key in settings if not key.startswith(f"{DELEGATE_KEY}.")}
        yield from _check_keys(f"{name}.", keys, config.get(name), defined_keys_of, {DELEGATE_KEY, "type"})
        prefix = f"{name}.{DELEGATE_KEY}."
        yield from _check_keys(
            prefix, set(settings_under(config, prefix)), settings.get(DELEGATE_KEY), defined_keys_of, set()
        )


def _check_keys(
    prefix: str,
    keys: Collection[str],
    class_name: str | None,
    defined_keys_of: DefinedKeys,
    extra_keys: Collection[str],
) -> Iterator[Finding]:
    """Yield a finding for each key that is in neither the class nor `extra_keys`. A class without keys allows any."""
    if class_name is None:
        return
    defined_keys = defined_keys_of(class_name)
    if defined_keys is None:
        remedy = "correct the class, or install the plugin on the worker; see docs/smt.md"
        yield violation(f"{prefix or 'connector.class: '}{class_name} is not installed", "an installed plugin", remedy)
        return
    known_keys = {*defined_keys, *extra_keys}
    for key in sorted(set(keys) - known_keys) if defined_keys else ():
        actual = f"{prefix}{key}: {class_name.rsplit('.', 1)[-1]} does not define this key"
        yield violation(actual, "a key that is defined", suggestion(key, known_keys, prefix))
