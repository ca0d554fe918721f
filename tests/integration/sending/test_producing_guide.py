"""The pages about ways of sending without a connector: the code runs verbatim."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from tests.integration.sending.producing_support import World, world

from outbox_events.waiting import Observation, wait_for

pytestmark = pytest.mark.integration
__all__ = ["world"]

DOCS = Path(__file__).parents[3] / "docs"


def snippets(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


FUNCTION, _ENCODER = snippets("ways-without-a-connector.md")
SNIPPETS = snippets("ways-in-detail.md")


def test_guide_has_snippets() -> None:
    assert len(SNIPPETS) == 5


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(world: World, number: int) -> None:
    with psycopg.connect(world.dsn) as connection:
        connection.execute("alter table purchase alter column id type uuid using id::uuid")
    names = {"dsn": world.dsn, "bootstrap_servers": world.settings["bootstrap.servers"], "topic": world.topic}
    with listeners_stopped(world):
        for snippet in (FUNCTION, SNIPPETS[number]):
            # dont_inherit excludes the __future__ imports of this file.
            exec(compile(snippet, "ways-in-detail.md", "exec", dont_inherit=True), names)  # noqa: S102
    assert world.delivered().total() == len(world.purchases()) == 1


@contextmanager
def listeners_stopped(world: World) -> Iterator[None]:
    """Send SIGTERM to this process when a snippet has installed a handler and its listener has deleted a row."""
    previous = signal.getsignal(signal.SIGTERM)
    ended = Event()

    def stop_listener() -> None:
        def poll() -> Observation[bool]:
            is_running = signal.getsignal(signal.SIGTERM) is not previous
            rows = world.column("select event_id from unproven_record")
            return Observation(ended.is_set() or (is_running and not rows) or None, f"rows {rows}")

        wait_for("the listener", poll, seconds=60)
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=stop_listener)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
        signal.signal(signal.SIGTERM, previous)
