"""Evaluation of all lint rules, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from outbox_kit import rules as rule_engine
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRule
from outbox_kit.linting.rules import (
    aggregate_keys,
    aliases,
    heartbeat,
    router_options,
    routes,
    schemas,
    secrets,
    settings,
    sizes,
    topics,
    unique,
)
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.rules import Check

GROUPS = (schemas, settings, heartbeat, routes, router_options, aggregate_keys, topics, sizes, secrets, aliases, unique)
RULES: tuple[LintRule, ...] = tuple(rule for group in GROUPS for rule in group.RULES)
# Only the jobs use `targets`. Whoever runs `apply` need not have the passwords of that section, and without them it
# is loaded as empty.
JOB_RULES = frozenset({"lint.materialization.target"})


def lint(inputs: Sequence[LintInput], rules: Iterable[LintRule] = RULES) -> list[Check]:
    """Return one check per violation, and one passed check for each rule without a violation."""
    return rule_engine.evaluate(rules, inputs)


def lint_deployment(pipeline: Pipeline, environment: Environment, config: Mapping[str, str]) -> list[Check]:
    """Lint one pipeline with its rendered connector config, for `plan` and `apply`, without JOB_RULES."""
    return lint([LintInput(pipeline, environment, config)], (rule for rule in RULES if rule.id not in JOB_RULES))
