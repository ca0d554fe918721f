"""Generated part of docs/lint.md: the rules."""

from __future__ import annotations

from outbox_kit.linting.rule_catalogue import RULES
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule
from outbox_lab.documents.markdown import list_item


def rules() -> str:
    """Return one item for each rule, in Markdown."""
    return "".join(
        list_item(f"`{rule.id}` ({rule.severity}): {rule.condition}.") + list_item(f"Reason: {rule.reason}.", "  ")
        for rule in (*RULES, unknown_keys_rule(lambda _: ()))
    )
