"""The example service's own component test, run as its developer runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.compose.composed import REPOSITORY
from tests.integration.support import run

EXAMPLE = REPOSITORY / "docs" / "examples" / "shop"


def test_the_examples_component_test_passes(tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}"], EXAMPLE)
    assert done.code == 0, done.words
    assert "3 passed" in done.stdout
