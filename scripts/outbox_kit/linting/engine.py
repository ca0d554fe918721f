"""Applies the rules. No input beyond the targets, but for the schema files that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Rule
from outbox_kit.linting.rules import (
    aliases,
    heartbeat,
    router_options,
    router_schemas,
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

# In the order of the report.
GROUPS = (schemas, settings, heartbeat, routes, router_options, router_schemas, topics, sizes, secrets, aliases, unique)
RULES: tuple[Rule, ...] = tuple(rule for group in GROUPS for rule in group.RULES)
# Of no concern to `apply`: only the jobs use the targets, and who applies need not hold their passwords. Without
# those the section is empty, which says nothing about the file.
OF_JOBS = (schemas.known_target,)


def lint(targets: Sequence[Target], rules: Iterable[Rule] = RULES) -> list[Check]:
    """Every rule over every target, in a fixed order: a check for each finding, or one that passed."""
    return [check for rule in rules for check in rule.checks(targets)]


def lint_deployment(pipeline: Pipeline, environment: Environment, config: Mapping[str, str]) -> list[Check]:
    """`lint` of one pipeline whose connector config is rendered already: for `plan` and `apply`.

    `environment.targets` is not looked at: see OF_JOBS.
    """
    return lint([Target(pipeline, environment, config)], (rule for rule in RULES if rule not in OF_JOBS))
