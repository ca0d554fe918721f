"""Rules for aliases of transforms and predicates: Connect ignores settings of an alias that is not listed."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator

from outbox_kit.connector_config import split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, violation
from outbox_kit.rules import Finding

LISTS = ("transforms", "predicates")
RULES = LintRules()


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "correct the name, or leave it out"


@RULES.rule(
    "alias.typed",
    "every alias of `transforms` and `predicates` has a type, and is listed once",
    reason="Connect rejects the config only when it is sent",
)
def typed(lint_input: LintInput) -> Iterator[Finding]:
    for name in LISTS:
        keys = [key for key in lint_input.config if key.startswith(f"{name}.") and key.endswith(".type")]
        for alias, count in Counter(split_list(lint_input.config.get(name, ""))).items():
            if f"{name}.{alias}.type" not in lint_input.config:
                known = [key.split(".")[1] for key in keys]
                yield violation(f"{name}.{alias}.type is not set", "a class", _nearest(alias, known))
            if count > 1:
                yield violation(f"{name} lists {alias} {count} times", "once", "list it once")


@RULES.rule(
    "alias.listed",
    "every `transforms.ALIAS.*` and `predicates.ALIAS.*` belongs to an alias that is listed",
    reason="Connect ignores settings of an alias that is not listed: the transform does not run",
)
def listed(lint_input: LintInput) -> Iterator[Finding]:
    for name in LISTS:
        known = split_list(lint_input.config.get(name, ""))
        used = {key.split(".")[1] for key in lint_input.config if key.startswith(f"{name}.")}
        for alias in sorted(used - set(known)):
            yield violation(f"{name}.{alias}.* is set, {name} does not list {alias}", "listed", _nearest(alias, known))


@RULES.rule(
    "alias.predicate",
    "a `predicate` that a transform names is listed in `predicates`, and every one listed is used",
    reason="a transform without its predicate receives records that it cannot process, such as heartbeats",
)
def predicate(lint_input: LintInput) -> Iterator[Finding]:
    known = split_list(lint_input.config.get("predicates", ""))
    used = {}
    for transform in lint_input.transforms:
        name = transform.settings.get("predicate")
        if name is not None:
            used[name] = transform
        elif "negate" in transform.settings:
            key = f"{transform.prefix}predicate"
            yield violation(f"{transform.prefix}negate without {key}", "both", f"set {key}")
    for name, transform in used.items():
        if name not in known:
            remedy = _nearest(name, known)
            yield violation(f"{transform.prefix}predicate={name} is not listed", "in predicates", remedy)
    for name in known:
        if name not in used:
            yield violation(f"no transform uses predicate {name}", "used", "name it in a transform, or leave it out")
