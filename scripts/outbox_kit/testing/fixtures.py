"""Provide fixtures. To use them, set `pytest_plugins = ["outbox_kit.testing.fixtures"]` in your conftest.py.

Override `outbox_images` to use other images, and `outbox_pipeline` to apply a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox_kit.testing.images import Images
from outbox_kit.testing.stack import OutboxStack


@pytest.fixture(scope="session")
def outbox_images() -> Images:
    """Return the images of the stack. By default, `make images` builds them."""
    return Images()


@pytest.fixture(scope="session")
def outbox_pipeline() -> Path | None:
    """Return the pipeline file to apply. By default, no pipeline is applied."""
    return None


@pytest.fixture(scope="session")
def outbox_stack(outbox_images: Images, outbox_pipeline: Path | None) -> Iterator[OutboxStack]:
    """Start the stack once per test session."""
    with OutboxStack(outbox_images) as stack:
        if outbox_pipeline is not None:
            stack.apply(outbox_pipeline)
        yield stack
