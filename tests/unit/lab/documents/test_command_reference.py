"""docs/cli.md is generated from the commands."""

from __future__ import annotations

from pathlib import Path

from outbox_lab.documents.command_reference import render


def test_document_is_up_to_date(repository: Path) -> None:
    written = (repository / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == render(), "run `python -m outbox_lab.documents.command_reference > docs/cli.md`"
