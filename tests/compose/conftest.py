"""The stack in containers. `make test` runs these where a container engine answers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.compose.composed import Composed, composed
from tests.conftest import make_project

# No image of testcontainers' own is needed where the images are built here; everything is removed by the fixtures.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


@pytest.fixture(scope="module")
def stack_in_containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """compose.yaml, started for one module."""
    with composed(make_project(tmp_path_factory.mktemp("composed"))) as stack:
        yield stack
