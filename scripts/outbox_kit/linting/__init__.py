"""Rules over the files alone: what can be known to break before anything is reached."""

from outbox_kit.linting.engine import RULES, lint, lint_deployment
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.loading import lint_files
from outbox_kit.linting.rule import Rule
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule

__all__ = ["RULES", "Rule", "Target", "lint", "lint_deployment", "lint_files", "unknown_keys_rule"]
