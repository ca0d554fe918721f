"""docs/receiving.md: the code runs verbatim, and the first example is short and passes type checks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event as StopEvent
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox_events import Event, emit
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.stack import Stack

GUIDE = Path(__file__).parents[3] / "docs" / "receiving.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
CONSUMER, TABLE, REPLY, *OTHERS = SNIPPETS


def run(snippet: str, **names: object) -> dict[str, Any]:
    # dont_inherit excludes the __future__ imports of this file.
    exec(compile(snippet, GUIDE.name, "exec", dont_inherit=True), names)  # noqa: S102
    return names


@pytest.fixture
def letters_dsn(source_dsn: str) -> str:
    with psycopg.connect(source_dsn) as connection:
        connection.execute("drop table if exists letter")
    run(TABLE, dsn=source_dsn)
    return source_dsn


def test_the_consumer_is_short_and_typed(tmp_path: Path) -> None:
    assert len([line for line in CONSUMER.splitlines() if line.strip()]) < 30
    (tmp_path / "letters.py").write_text(CONSUMER)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "letters.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_consumer_applies_each_event_once(library: Deployment, stack: Stack, letters_dsn: str) -> None:
    state = stack.state()
    assert state is not None
    author, event_id = str(uuid4()), uuid4()
    payload = {"id": author, "name": "Ursula", "pen_names": [], "updated_at": "2026-01-01T00:00:00Z"}
    with psycopg.connect(letters_dsn) as connection:
        emit(
            connection,
            aggregate_type="author",
            aggregate_id=author,
            event_type="author_added",
            payload=payload,
            event_id=event_id,
        )
    stop = StopEvent()
    receive = run(CONSUMER)["receive"]
    thread = Thread(target=receive, args=(letters_dsn, state.kafka, state.registry, stop))
    thread.start()
    try:
        wait_for("the letter", lambda: written(letters_dsn, author), seconds=60)
    finally:
        stop.set()
        thread.join(60)
    with psycopg.connect(letters_dsn) as connection:
        claimed = connection.execute("select 1 from processed_event where event_id = %s", [str(event_id)]).fetchall()
        assert claimed == [(1,)]
        # The worked example compares its topics with its tables, and this author is not in a table.
        emit(connection, aggregate_type="author", aggregate_id=author, event_type="author_removed", payload=None)
    del library


def written(dsn: str, author: str) -> Observation[bool]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select text from letter where author_id = %s", [author]).fetchall()
    return Observation(True if rows == [("Dear Ursula",)] else None, str(rows))


def test_a_reply_is_one_transaction(library: Deployment, letters_dsn: str) -> None:
    del library  # creates the outbox table
    reply = run(REPLY)["reply"]
    event = Event("library.author", 0, 0, b"a-1", None)
    with psycopg.connect(letters_dsn) as connection:
        reply(event, connection)
        count = "select count(*) from outbox_event where event_type = 'letter_sent'"
        assert connection.execute(count).fetchall() == [(1,)]
        connection.rollback()
        assert connection.execute("select count(*) from letter").fetchall() == [(0,)]


def test_the_receiver_of_the_readme_runs(library: Deployment, bootstrap: str, letters_dsn: str) -> None:
    del library  # creates the topic
    readme = GUIDE.parents[1] / "scripts" / "outbox_events" / "README.md"
    snippet = re.findall(r"^```python\n(.*?)^```", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]
    stop = StopEvent()
    stop.set()
    run(snippet, kafka=bootstrap, dsn=letters_dsn, stop=stop)


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_snippets_run(bootstrap: str, letters_dsn: str, create_topic: Callable[..., str], number: int) -> None:
    if "letters.dead-letter" in OTHERS[number]:
        create_topic("letters.dead-letter", partitions=1)
    run(OTHERS[number], kafka=bootstrap, dsn=letters_dsn)
