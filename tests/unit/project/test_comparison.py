"""docs/comparison.md names an existing test for every feature."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
# The methods of sending and receiving that follow are not all features.
FEATURES = PAGE.partition("\n## Methods and tools")[0]
ITEMS = re.split(r"^- ", FEATURES, flags=re.MULTILINE)[1:]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))


def test_every_item_names_a_test() -> None:
    assert [item for item in ITEMS if "`tests/" not in item] == []


@pytest.mark.parametrize("name", NAMED)
def test_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert function in tests if function else any(item.startswith("test_") for item in tests)
