"""The component tests of the examples in docs/examples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.compose.compose_stack import REPOSITORY
from tests.integration.support import run

EXAMPLES = REPOSITORY / "docs" / "examples"


# One run with both services starts only one stack.
SERVICES = ["-c", "book_rental/pyproject.toml", "book_management", "book_rental"]


@pytest.mark.parametrize(("arguments", "passed"), [(SERVICES, 15), (["notes"], 1)])
def test_component_tests_of_the_examples_pass(arguments: list[str], passed: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}", *arguments]
    done = run(command, EXAMPLES)
    assert done.code == 0, done.output
    assert f"{passed} passed" in done.stdout
