"""Provide a fixture with a running embedded stack, which needs no container engine (docs/testing.md).

To use it, set `pytest_plugins = ["outbox_kit.stack.fixtures"]` in your conftest.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from outbox_kit.stack.stack import Stack
from outbox_kit.stack.state import StackState


@pytest.fixture(scope="session")
def embedded_stack_folder(pytestconfig: pytest.Config) -> Path:
    """Return the folder of the stack, whose files are in build/stack. By default, it is pytest's rootdir."""
    return pytestconfig.rootpath


@pytest.fixture(scope="session")
def embedded_stack_services() -> Sequence[str] | None:
    """Return the services to start, such as ["kafka"], together with those that they need. By default, start all."""
    return None


@pytest.fixture(scope="session")
def embedded_stack(embedded_stack_folder: Path, embedded_stack_services: Sequence[str] | None) -> Iterator[StackState]:
    """Return the addresses of the running stack, as `running_stack` does."""
    with running_stack(embedded_stack_folder, embedded_stack_services) as state:
        yield state


@contextmanager
def running_stack(folder: Path, services: Sequence[str] | None = None) -> Iterator[StackState]:
    """Yield the addresses of the stack of this folder. If it is not running, start it, and stop it at the end.

    The data remains. Raises StackError and ConfigurationError if the stack cannot be started.
    """
    stack = Stack(folder)
    running = stack.state()
    try:
        yield running or stack.up(services=services)
    finally:
        if running is None:
            stack.down()
