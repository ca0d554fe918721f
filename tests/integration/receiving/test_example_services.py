"""The tests of the example services pass on the embedded stack, with the environment files of the examples."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.integration.support import run

from outbox_kit.stack import Stack

REPOSITORY = Path(__file__).parents[3]
SERVICES = ("book_management", "book_rental")
CONFTEST = "from tests.integration.receiving.embedded_services import outbox_stack\n"


@pytest.mark.long  # tests/compose runs the same tests on containers
def test_services_pass_their_tests(project: Path, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    del stack  # must be running
    tmp_path = tmp_path_factory.mktemp("services")  # short, because the path of a Unix socket is limited to 107 bytes
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in SERVICES:
        ignored = shutil.ignore_patterns("build", "__pycache__")
        shutil.copytree(REPOSITORY / "docs" / "examples" / name, tmp_path / name, ignore=ignored)
        (tmp_path / name / "build").mkdir()
        (tmp_path / name / "build" / "stack").symlink_to(project / "build" / "stack")
    options = ["-q", "-p", "no:cacheprovider", "-c", "book_rental/pyproject.toml", "--confcutdir=."]
    command = [sys.executable, "-m", "pytest", *options, f"--basetemp={tmp_path / 'base'}", *SERVICES]
    done = run(command, tmp_path, PYTHONPATH=os.pathsep.join([str(REPOSITORY), *sys.path]))
    assert done.code == 0, done.output
    assert "15 passed" in done.stdout
