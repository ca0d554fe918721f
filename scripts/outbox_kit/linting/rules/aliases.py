"""Rules for aliases of transforms and predicates. Connect ignores the settings of an alias that is not listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from outbox_kit.connector_config import split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, suggestion, violation
from outbox_kit.rules import Finding

ALIAS_LISTS = ("transforms", "predicates")
RULES = LintRules()


@RULES.rule(
    "alias.typed",
    "every alias in `transforms` and `predicates` has a type and is listed once",
    reason="Connect rejects such a config",
)
def alias_types(lint_input: LintInput) -> Iterator[Finding]:
    for name in ALIAS_LISTS:
        keys = [key for key in lint_input.config if key.startswith(f"{name}.") and key.endswith(".type")]
        for alias, count in Counter(split_list(lint_input.config.get(name, ""))).items():
            if f"{name}.{alias}.type" not in lint_input.config:
                aliases = [key.split(".")[1] for key in keys]
                yield violation(f"{name}.{alias}.type is not set", "a class", suggestion(alias, aliases))
            if count > 1:
                yield violation(f"{name} lists {alias} {count} times", "each alias once", f"list {alias} once")


@RULES.rule(
    "alias.listed",
    "the alias of every `transforms.ALIAS.*` and `predicates.ALIAS.*` is listed",
    reason="Connect ignores settings of an alias that is not listed: the transform does not run",
)
def unlisted_aliases(lint_input: LintInput) -> Iterator[Finding]:
    for name in ALIAS_LISTS:
        aliases = split_list(lint_input.config.get(name, ""))
        configured_aliases = {key.split(".")[1] for key in lint_input.config if key.startswith(f"{name}.")}
        for alias in sorted(configured_aliases - set(aliases)):
            yield violation(
                f"{name}.{alias}.* is set, but not listed in {name}", "a listed alias", suggestion(alias, aliases)
            )


@RULES.rule(
    "alias.predicate",
    "every `predicate` of a transform is listed in `predicates`, and every listed predicate is used",
    reason="a transform without its predicate receives records that it cannot process, such as heartbeats",
)
def predicate_aliases(lint_input: LintInput) -> Iterator[Finding]:
    listed_predicates = split_list(lint_input.config.get("predicates", ""))
    transforms_by_predicate = {}
    for transform in lint_input.transforms:
        name = transform.settings.get("predicate")
        if name is not None:
            transforms_by_predicate[name] = transform
        elif "negate" in transform.settings:
            key = f"{transform.prefix}predicate"
            yield violation(f"{transform.prefix}negate without {key}", f"{key} is set", f"set {key}")
    for name, transform in transforms_by_predicate.items():
        if name not in listed_predicates:
            actual = f"{transform.prefix}predicate={name} is not listed in predicates"
            yield violation(actual, "a listed predicate", suggestion(name, listed_predicates))
    for name in listed_predicates:
        if name not in transforms_by_predicate:
            yield violation(f"no transform uses predicate {name}", "a used predicate", f"use or remove {name}")
