"""Provide fixtures. To use them, set `pytest_plugins = ["outbox_events.testing.fixtures"]` in your conftest.py.

`outbox_kit.testing.fixtures` and `outbox_kit.stack.fixtures` start the servers of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from outbox_events import testing

if TYPE_CHECKING:
    from outbox_events.testing import EmittedEvents, MakeReceiver


@pytest.fixture
def emitted_events() -> Iterator[EmittedEvents]:
    """Collect the events that the test emits, instead of inserting them."""
    with testing.collect_events() as emitted:
        yield emitted


@pytest.fixture
def make_receiver() -> Iterator[MakeReceiver]:
    """Create a TestReceiver from the arguments of its class. It is closed at the end of the test."""
    with ExitStack() as receivers:
        yield lambda *arguments, **options: receivers.enter_context(testing.TestReceiver(*arguments, **options))
