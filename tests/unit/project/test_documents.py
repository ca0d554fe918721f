"""What the documents point to is there, and the code that they show is that of the examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHOP = ROOT / "docs" / "examples" / "shop"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_the_code_of_the_testing_guide_is_the_examples() -> None:
    guide = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted((SHOP / "tests").glob("*.py")))
    shown = [line for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) for line in block.splitlines()]
    assert len(shown) > 10
    assert [line for line in shown if line.strip() and not line.startswith("# ") and line not in code] == []


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_ci_examples_are_yaml_and_install_the_kit(name: str) -> None:
    text = (ROOT / "docs" / "examples" / "ci" / name).read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    assert "pip install outbox-kit" in text
