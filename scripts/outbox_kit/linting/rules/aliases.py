"""Transforms and predicates: a misplaced alias is no error to Connect, the step is only not there."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator

from outbox_kit.connector_config import items
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule

LISTS = ("transforms", "predicates")


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "correct the name, or leave it out"


@rule(
    "alias.typed",
    "every alias of `transforms` and `predicates` has a type, and is listed once",
    why="Connect refuses the config only when it is sent",
)
def typed(target: Target) -> Iterator[Finding]:
    for name in LISTS:
        listed = items(target.config.get(name, ""))
        keys = [key for key in target.config if key.startswith(f"{name}.") and key.endswith(".type")]
        for alias, count in Counter(listed).items():
            if f"{name}.{alias}.type" not in target.config:
                known = [key.split(".")[1] for key in keys]
                yield Finding(f"{name}.{alias}.type is not set", "a class", _nearest(alias, known))
            if count > 1:
                yield Finding(f"{alias} stands in {name} {count} times", "once", "list it once")


@rule(
    "alias.listed",
    "every `transforms.ALIAS.*` and `predicates.ALIAS.*` belongs to an alias that is listed",
    why="settings of an alias that is not listed are ignored without a word: the step does not run",
)
def listed(target: Target) -> Iterator[Finding]:
    for name in LISTS:
        known = items(target.config.get(name, ""))
        used = {key.split(".")[1] for key in target.config if key.startswith(f"{name}.")}
        for alias in sorted(used - set(known)):
            yield Finding(f"{name}.{alias}.* is set, {name} does not list {alias}", "listed", _nearest(alias, known))


@rule(
    "alias.predicate",
    "a `predicate` that a transform names is listed in `predicates`, and every one listed is used",
    why="a transform without its predicate meets records that it was not made for, heartbeats first of all",
)
def predicate(target: Target) -> Iterator[Finding]:
    known = items(target.config.get("predicates", ""))
    used = {}
    for transform in target.transforms:
        name = transform.settings.get("predicate")
        if name is not None:
            used[name] = transform.alias
        elif "negate" in transform.settings:
            where = f"transforms.{transform.alias}"
            yield Finding(f"{where}.negate without {where}.predicate", "both", f"set {where}.predicate")
    for name, alias in used.items():
        if name not in known:
            yield Finding(f"transforms.{alias}.predicate={name} is not listed", "in predicates", _nearest(name, known))
    for name in known:
        if name not in used:
            yield Finding(f"no transform uses predicate {name}", "used", "name it in a transform, or leave it out")


RULES = (typed, listed, predicate)
