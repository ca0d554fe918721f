"""The stack in containers. `make test` runs these tests where a container engine is available."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.compose.composed import Composed, composed
from tests.conftest import make_project

# testcontainers' own image is not needed: images are built here, and the fixtures remove everything.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


@pytest.fixture(scope="module")
def stack_in_containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """compose.yaml, started for one module."""
    with composed(make_project(tmp_path_factory.mktemp("composed"))) as stack:
        yield stack
