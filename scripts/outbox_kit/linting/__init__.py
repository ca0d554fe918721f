"""Check pipeline files and rendered connector configs. Checks that require a connection are in `verification`."""

from outbox_kit.linting.lint_rule import LintInput, LintRule
from outbox_kit.linting.loading import lint_files
from outbox_kit.linting.rule_catalogue import RULES, lint, lint_deployment
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule

__all__ = ["RULES", "LintInput", "LintRule", "lint", "lint_deployment", "lint_files", "unknown_keys_rule"]
