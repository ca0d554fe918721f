"""docs/cli.md is generated from the commands."""

from __future__ import annotations

from pathlib import Path

from outbox_kit.cli.reference import render


def test_document_is_up_to_date(repository: Path) -> None:
    written = (repository / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == render(), "run `python -m outbox_kit.cli.reference > docs/cli.md`"
