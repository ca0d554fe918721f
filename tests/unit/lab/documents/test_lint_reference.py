"""docs/lint.md, which is generated from the rules."""

from __future__ import annotations

import re
from pathlib import Path

from outbox_kit.linting import RULES
from outbox_lab.documents import lint_reference


def test_page_is_up_to_date(repository: Path) -> None:
    actual = (repository / "docs" / "lint.md").read_text(encoding="utf-8")
    assert actual == lint_reference.page(), "run: python -m outbox_lab.documents.lint_reference > docs/lint.md"


def test_page_lists_every_rule_once() -> None:
    listed = re.findall(r"^- `(lint\.\S+)` \(", lint_reference.page(), flags=re.MULTILINE)
    assert listed == [*(rule.id for rule in RULES), "lint.unknown-keys"]


def test_lines_are_short() -> None:
    assert max(map(len, lint_reference.page().splitlines())) <= 120
