"""Pages and JSON Schemas that `python -m outbox_lab.documents` generates from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from outbox_kit.linting import RULES
from outbox_lab.documents import __main__ as documents
from outbox_lab.documents.check_reference import rules


def test_generated_files_are_up_to_date(repository: Path) -> None:
    for name, text in documents.files(repository).items():
        assert (repository / name).read_text(encoding="utf-8") == text, f"{name}: run python -m outbox_lab.documents"


@pytest.mark.parametrize("name", ["docs/lint.md", "docs/verify.md"])
def test_lines_are_short(repository: Path, name: str) -> None:
    assert max(map(len, (repository / name).read_text(encoding="utf-8").splitlines())) <= 120


def test_every_lint_rule_is_listed_once() -> None:
    listed = re.findall(r"^- `(lint\.\S+)` \(", rules(), flags=re.MULTILINE)
    assert listed == [*(rule.id for rule in RULES), "lint.unknown-keys"]


def test_command_writes_files_and_keeps_the_introduction(tmp_path: Path) -> None:
    for folder in ("docs", "connectors"):
        (tmp_path / folder).mkdir()
    for name in documents.PAGES:
        (tmp_path / name).write_text(f"# Title\n\nText.\n\n{documents.MARKER}stale\n", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "outbox_lab.documents", str(tmp_path)], check=True)
    written = {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.*")}
    assert written == documents.files(tmp_path)
    for name, generate in documents.PAGES.items():
        assert written[name] == f"# Title\n\nText.\n\n{documents.MARKER}\n{generate()}"


def test_rejects_a_page_without_the_marker(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "cli.md").write_text("# Mine\n", encoding="utf-8")
    with pytest.raises(ValueError, match="does not contain"):
        documents.files(tmp_path)
