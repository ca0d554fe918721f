"""Documents: targets of links, and code blocks that are part of the examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHOP = ROOT / "docs" / "examples" / "shop"
# A path such as `tests/test_notes.py`, followed by a block with the content of the file.
FILE_BLOCK = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_has_a_target(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [item for item in targets if "://" not in item and not (page.parent / item).exists()]
    assert missing == []


def guide(*, without_files: bool = True) -> str:
    """Return docs/testing.md, by default without the blocks that contain an entire file."""
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    return FILE_BLOCK.sub("", text) if without_files else text


def test_testing_guide_contains_every_file_of_the_smallest_project() -> None:
    notes = SHOP.parent / "notes"
    files = {path for path in notes.rglob("*.*") if path.suffix in {".yaml", ".avsc", ".py", ".toml"}}
    visible = {notes / name: code for name, code in FILE_BLOCK.findall(guide(without_files=False))}
    assert visible == {path: path.read_text(encoding="utf-8") for path in files}


def test_code_of_the_testing_guide_is_that_of_the_examples() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted((SHOP / "tests").glob("*.py")))
    visible = [line for block in re.findall(r"```python\n(.*?)```", guide(), re.DOTALL) for line in block.splitlines()]
    assert len(visible) > 10
    assert [line for line in visible if line.strip() and not line.startswith("# ") and line not in code] == []


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_ci_examples_are_valid_yaml_and_install_the_package(name: str) -> None:
    text = (ROOT / "docs" / "examples" / "ci" / name).read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    assert "pip install outbox-kit" in text
