"""Define rules for aliases of transforms and predicates. Connect ignores the settings of an unlisted alias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from outbox_kit.connect.connector_config import split_list
from outbox_kit.linting.lint_rule import LintInput, LintRules, suggestion, violation
from outbox_kit.results.checks import Finding

ALIAS_LIST_KEYS = ("transforms", "predicates")
RULES = LintRules()


@RULES.rule(
    "alias.typed",
    "every alias in `transforms` and `predicates` has a type and is listed once",
    reason="Connect rejects an alias without a type, and an alias that is listed twice",
)
def check_alias_types(lint_input: LintInput) -> Iterator[Finding]:
    for list_key in ALIAS_LIST_KEYS:
        type_keys = [key for key in lint_input.config if key.startswith(f"{list_key}.") and key.endswith(".type")]
        for alias, count in Counter(split_list(lint_input.config.get(list_key, ""))).items():
            if f"{list_key}.{alias}.type" not in lint_input.config:
                typed_aliases = [key.split(".")[1] for key in type_keys]
                yield violation(f"{list_key}.{alias}.type is not set", "a class", suggestion(alias, typed_aliases))
            if count > 1:
                yield violation(f"{list_key} lists {alias} {count} times", "each alias once", f"list {alias} once")


@RULES.rule(
    "alias.listed",
    "the alias of every `transforms.ALIAS.*` and `predicates.ALIAS.*` is listed",
    reason="Connect ignores the settings of an unlisted alias, and does not run the alias's transform or predicate",
)
def check_unlisted_aliases(lint_input: LintInput) -> Iterator[Finding]:
    for list_key in ALIAS_LIST_KEYS:
        aliases = split_list(lint_input.config.get(list_key, ""))
        configured_aliases = {key.split(".")[1] for key in lint_input.config if key.startswith(f"{list_key}.")}
        for alias in sorted(configured_aliases - set(aliases)):
            actual = f"{list_key}.{alias}.* is set, but {list_key} does not list {alias}"
            yield violation(actual, "a listed alias", suggestion(alias, aliases))


@RULES.rule(
    "alias.predicate",
    "every `predicate` of a transform is listed in `predicates`, and every listed predicate is used",
    reason="a transform without its predicate receives records that it cannot process, such as heartbeats",
)
def check_predicate_aliases(lint_input: LintInput) -> Iterator[Finding]:
    listed_predicates = split_list(lint_input.config.get("predicates", ""))
    transforms_by_predicate = {}
    for transform in lint_input.transforms:
        name = transform.settings.get("predicate")
        if name is not None:
            transforms_by_predicate[name] = transform
        elif "negate" in transform.settings:
            key = f"{transform.prefix}predicate"
            yield violation(f"{transform.prefix}negate is set, but {key} is not", f"{key} is set", f"set {key}")
    for name, transform in transforms_by_predicate.items():
        if name not in listed_predicates:
            actual = f"{transform.prefix}predicate={name} is not listed in predicates"
            yield violation(actual, "a listed predicate", suggestion(name, listed_predicates))
    for name in listed_predicates:
        if name not in transforms_by_predicate:
            yield violation(f"no transform uses predicate {name}", "a used predicate", f"remove predicate {name}")
