"""docs/frameworks.md: the code runs verbatim. Examples whose packages are not installed are skipped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox_events import Event, Handlers, RefusedError, processed_table
from outbox_events.testing import TestReceiver, event

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"
POOL, FASTAPI, DJANGO_EMIT, DJANGO_RECEIVE, SQLALCHEMY = re.findall(
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
