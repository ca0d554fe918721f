"""Rules over the files alone: what can be known to break before anything is reached."""

from outbox_kit.linting.files import lint_files
from outbox_kit.linting.rule import Rule
from outbox_kit.linting.run import RULES, lint, lint_deployment
from outbox_kit.linting.target import Target
from outbox_kit.linting.unknown_keys import unknown_keys

__all__ = ["RULES", "Rule", "Target", "lint", "lint_deployment", "lint_files", "unknown_keys"]
