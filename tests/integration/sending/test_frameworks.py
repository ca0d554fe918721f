"""docs/frameworks.md: the code runs verbatim. Examples whose packages are not installed are skipped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict
from tests.integration.receiving.service import provide_topic

from outbox_events import Event, Handlers, RefusedError, processed_table
from outbox_events.testing import TestReceiver, event
from outbox_kit.stack import Stack

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"
POOL, FASTAPI, ASYNCIO, DJANGO_EMIT, DJANGO_RECEIVE, SQLALCHEMY = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def run(snippet: str, **names: object) -> dict[str, Any]:
    # dont_inherit excludes the __future__ imports of this file.
    exec(compile(snippet, PAGE.name, "exec", dont_inherit=True), names)  # noqa: S102
    return names


@pytest.fixture
def titles_dsn(clean_dsn: str) -> str:
    with psycopg.connect(clean_dsn) as connection:
        connection.execute("drop table if exists title")
        connection.execute("create table title (book_id text primary key, title text not null)")
        connection.execute(processed_table.create_table_sql())
    return clean_dsn


def rows(dsn: str) -> tuple[list[Any], list[Any]]:
    """Return the titles, and the aggregate ids and types of the events."""
    with psycopg.connect(dsn) as connection:
        titles = connection.execute("select book_id, title from title order by book_id").fetchall()
        return titles, connection.execute("select aggregate_id, event_type from outbox_event order by seq").fetchall()


def test_sqlalchemy(titles_dsn: str) -> None:
    run(SQLALCHEMY, dsn=titles_dsn)
    assert rows(titles_dsn) == ([("b-2", "Dune")], [("b-2", "title_copied")])


def test_psycopg_pool(titles_dsn: str) -> None:
    pytest.importorskip("psycopg_pool")
    run(POOL, dsn=titles_dsn)
    assert rows(titles_dsn) == ([("b-1", "Dune")], [("b-1", "book_added")])


def test_fastapi(titles_dsn: str) -> None:
    pytest.importorskip("psycopg_pool")
    client = pytest.importorskip("fastapi.testclient")
    with client.TestClient(run(FASTAPI, dsn=titles_dsn)["app"]) as service:
        assert service.put("/books/b-1?title=Dune").json() == {"title": "Dune"}
    assert rows(titles_dsn) == ([("b-1", "Dune")], [("b-1", "book_changed")])


def test_asyncio(titles_dsn: str, stack: Stack) -> None:
    """SIGTERM ends the receiver after its batch, and the tasks of the service run meanwhile."""
    state = stack.state()
    assert state is not None
    names = run(ASYNCIO.replace("library.book", topic := f"books.{uuid4().hex[:8]}"), dsn=titles_dsn)
    provide_topic(AdminClient({"bootstrap.servers": state.kafka}), NewTopic(topic, 1, 1))
    producer = Producer({"bootstrap.servers": state.kafka})
    for title in ("Dune", "Emma"):
        headers = {"event_type": "book_added", "event_id": title}
        producer.produce(topic, json.dumps({"title": title}), key=f"b-{title}", headers=headers)
    producer.produce(topic, b"{}", headers={"event_type": "stop", "event_id": "stop"})
    assert producer.flush(30) == 0

    async def service() -> None:
        ticks = asyncio.create_task(tick())
        await names["main"]({"bootstrap.servers": state.kafka, "group.id": topic})
        ticks.cancel()

    async def tick() -> None:
        while True:
            ticked.append(await asyncio.sleep(0.01))

    ticked: list[None] = []
    names["handlers"].on("stop")(lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    asyncio.run(service())
    assert rows(titles_dsn)[0] == [("b-Dune", "Dune: A Novel"), ("b-Emma", "Emma: A Novel")]
    assert ticked


@pytest.fixture
def django_dsn(titles_dsn: str) -> str:
    django = pytest.importorskip("django")
    from django.conf import settings  # noqa: PLC0415

    parts = conninfo_to_dict(titles_dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {name: parts.get(key, "") for name, key in names.items()}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}})
    django.setup()
    return titles_dsn


def test_django(django_dsn: str) -> None:
    from django.db import DatabaseError, connection, transaction  # noqa: PLC0415

    with psycopg.connect(django_dsn) as admin:
        admin.execute("insert into title values ('b-1', 'old')")
    change = run(DJANGO_EMIT)["change_title"]
    change("b-1", "Dune")
    with transaction.atomic():
        change("b-1", "lost")
        transaction.set_rollback(True)
    assert rows(django_dsn) == ([("b-1", "Dune")], [("b-1", "book_changed")])
    names = run(DJANGO_RECEIVE)
    handlers = Handlers[psycopg.Connection]()

    @handlers.on("book_changed")
    def copy(event: Event, _: psycopg.Connection) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("insert into title values (%s, %s)", [event.event_id, event.value])
        if event.value == "bad":
            raise ValueError

    changed = event("book_changed", "copied", event_id="copy-1")
    with TestReceiver(names["DjangoEvents"](), handlers, recoverer=lambda _, __: None) as receiver:
        receiver.deliver([changed, changed, event("book_changed", "bad", event_id="copy-2")])
    assert (receiver.counters.handled, receiver.counters.duplicates, receiver.counters.recovered) == (1, 1, 1)
    assert rows(django_dsn)[0] == [("b-1", "Dune"), ("copy-1", "copied")]
    wrapped = DatabaseError()
    wrapped.__cause__ = psycopg.OperationalError()
    assert names["reaction"](wrapped).value == "wait"
    with pytest.raises(RefusedError):
        run(DJANGO_EMIT.replace("transaction.atomic(), ", ""))["change_title"]("b-1", "alone")
