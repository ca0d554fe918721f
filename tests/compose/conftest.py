"""The stack in containers. `make test` runs these tests if a container engine is available."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compose.compose_stack import ComposeStack, start_compose_stack
from tests.compose.wheel_environment import REPOSITORY, install_wheels, run
from tests.conftest import make_project

# The Ryuk image is not needed: the fixtures remove all containers.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


@pytest.fixture(scope="module")
def stack_in_containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    """Start compose.yaml for one module."""
    with start_compose_stack(make_project(tmp_path_factory.mktemp("composed"))) as stack:
        yield stack


@pytest.fixture(scope="session")
def dist() -> Path:
    done = run([sys.executable, "scripts/dist.py"], REPOSITORY)
    assert done.code == 0, done.output
    return REPOSITORY / "dist"


@pytest.fixture(scope="session")
def wheel_commands(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of commands of an environment with only the wheels and their requirements installed."""
    return install_wheels(tmp_path_factory.mktemp("wheel") / "venv", dist)
