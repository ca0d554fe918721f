"""Provide fixtures. To use them, set `pytest_plugins = ["outbox_events.testing.fixtures"]` in your conftest.py.

`outbox_kit.testing.fixtures` and `outbox_kit.testing.embedded_fixtures` start the servers of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from outbox_events.testing.emitted_events import EmittedEvents, collect_events
from outbox_events.testing.memory_receiver import MakeReceiver, TestReceiver


@pytest.fixture
def emitted_events() -> Iterator[EmittedEvents]:
    """Collect the events that the test emits, instead of inserting them."""
    with collect_events() as emitted:
        yield emitted


@pytest.fixture
def make_receiver() -> Iterator[MakeReceiver]:
    """Create a TestReceiver from the arguments of its class. It is closed at the end of the test."""
    with ExitStack() as receivers:
        yield lambda *arguments, **options: receivers.enter_context(TestReceiver(*arguments, **options))
