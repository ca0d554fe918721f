"""docs/lint.md is made from the rules; this holds the page against them."""

from __future__ import annotations

import re
from pathlib import Path

from outbox_kit.linting import RULES, reference, run


def test_the_page_is_up_to_date(repository: Path) -> None:
    found = (repository / "docs" / "lint.md").read_text(encoding="utf-8")
    assert found == reference.page(), "run: python -m outbox_kit.linting.reference > docs/lint.md"


def test_every_rule_is_on_the_page_once() -> None:
    listed = re.findall(r"^\| `(lint\.\S+)` ", reference.page(), flags=re.MULTILINE)
    assert listed == [*(rule.id for rule in RULES), "lint.unknown-keys"]


def test_every_rule_that_a_module_defines_is_applied() -> None:
    """A rule that is left out of its module's RULES would be dead words."""
    for group in run.GROUPS:
        defined = {entry.id for entry in vars(group).values() if isinstance(entry, run.Rule)}
        assert defined <= {rule.id for rule in group.RULES}, group.__name__
