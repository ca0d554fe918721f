"""The stack in containers. `make test` runs these tests if a container engine is available."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.compose.compose_stack import ComposeStack, start_compose_stack
from tests.conftest import make_project

# The Ryuk image is not needed: the fixtures remove all containers.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


@pytest.fixture(scope="module")
def stack_in_containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    """Start compose.yaml for one module."""
    with start_compose_stack(make_project(tmp_path_factory.mktemp("composed"))) as stack:
        yield stack
