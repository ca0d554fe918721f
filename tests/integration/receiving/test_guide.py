"""The pages about receivers: the code runs verbatim, and the first example is short and passes type checks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as StopEvent
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox_events import Event, emit, use_tracer
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.stack import Stack

GUIDE = Path(__file__).parents[3] / "docs" / "receiving.md"
PAGES = [GUIDE, *sorted(GUIDE.parent.glob("receiving-*.md"))]
SNIPPETS = [
    snippet
    for page in PAGES
    for snippet in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]
CONSUMER, TABLE, REPLY, *OTHERS = SNIPPETS
README = GUIDE.parents[1] / "scripts" / "outbox_events" / "README.md"
_, STATISTICS, TEST_OF_STATISTICS = re.findall(
    r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
CONFTEST = """
import pytest
pytest_plugins = ["outbox_events.testing.fixtures"]

@pytest.fixture
def dsn():
    return {dsn!r}
"""


def run(snippet: str, **names: object) -> dict[str, Any]:
    # dont_inherit excludes the __future__ imports of this file.
    exec(compile(snippet, GUIDE.name, "exec", dont_inherit=True), names)  # noqa: S102
    return names


@pytest.fixture(autouse=True)
def _default_tracer() -> Iterator[None]:
    """Restore the tracer, because the tests of a run share a process."""
    yield
    use_tracer(None)


@pytest.fixture
def letters_dsn(source_dsn: str) -> str:
    with psycopg.connect(source_dsn) as connection:
        connection.execute("drop table if exists letter")
    run(TABLE, dsn=source_dsn)
    return source_dsn


def lines(code: str) -> int:
    return len([line for line in code.splitlines() if line.strip()])


def test_the_consumers_are_short_and_typed(tmp_path: Path) -> None:
    assert lines(CONSUMER) < 30
    assert lines(STATISTICS) + lines(TEST_OF_STATISTICS) <= 30
    files = {"letters.py": CONSUMER, "statistics_service.py": STATISTICS, "test_statistics.py": TEST_OF_STATISTICS}
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *files]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_test_of_the_readme_passes(letters_dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(letters_dsn) as connection:
        connection.execute("drop table if exists book_statistics")
        connection.execute("create table book_statistics (id text primary key, title text, changes int default 0)")
        connection.execute("insert into book_statistics (id) values ('b-1')")
    (tmp_path / "statistics_service.py").write_text(STATISTICS)
    (tmp_path / "test_statistics.py").write_text(TEST_OF_STATISTICS)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(dsn=letters_dsn))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


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
    stop = StopEvent()
    stop.set()
    run(STATISTICS, __name__="statistics_service")["receive"](letters_dsn, bootstrap, stop)


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_snippets_run(bootstrap: str, letters_dsn: str, create_topic: Callable[..., str], number: int) -> None:
    if "letters.dead-letter" in OTHERS[number]:
        create_topic("letters.dead-letter", partitions=1)
    run(OTHERS[number], kafka=bootstrap, dsn=letters_dsn)
