"""Evaluate all lint rules, in the order in which reports list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from outbox_kit.linting.lint_rule import LintInput, LintRule
from outbox_kit.linting.rules import (
    aggregate_keys,
    aliases,
    heartbeat,
    pipeline_files,
    routes,
    secrets,
    settings,
    sizes,
    topics,
    unique_names,
)
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.results import checks as rule_engine
from outbox_kit.results.checks import Check

RULE_MODULES = (
    pipeline_files,
    settings,
    heartbeat,
    routes,
    aggregate_keys,
    topics,
    sizes,
    secrets,
    aliases,
    unique_names,
)
RULES: tuple[LintRule, ...] = tuple(rule for module in RULE_MODULES for rule in module.RULES)
# Rules about `targets`, which only the Spark jobs use. `apply` does not need the passwords in `targets`. If a password
# is not set, `apply` loads `targets` as an empty section, and these rules would fail.
JOB_RULE_IDS = frozenset({"lint.materialization.target"})


def lint(inputs: Sequence[LintInput], rules: Iterable[LintRule] = RULES) -> list[Check]:
    """Return one failed check per violation, and one passed check for each rule without a violation."""
    return rule_engine.evaluate(rules, inputs)


def lint_deployment(pipeline: Pipeline, environment: Environment, config: Mapping[str, str]) -> list[Check]:
    """Lint one pipeline and its rendered connector config for `plan` and `apply`, without JOB_RULE_IDS."""
    return lint([LintInput(pipeline, environment, config)], (rule for rule in RULES if rule.id not in JOB_RULE_IDS))
