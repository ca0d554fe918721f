"""docs/sending.md and the README of the library: the code runs verbatim, and the listed privileges are sufficient."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from outbox_events import emit

pytestmark = pytest.mark.integration

GUIDE = Path(__file__).parents[3] / "docs" / "sending.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_guide_has_snippets() -> None:
    assert len(SNIPPETS) > 5


README = Path(__file__).parents[3] / "scripts" / "outbox_events" / "README.md"


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run(clean_dsn: str, snippet: str) -> None:
    # dont_inherit excludes the __future__ imports of this file.
    code = compile(snippet, GUIDE.name, "exec", dont_inherit=True)
    exec(code, {"dsn": clean_dsn, "__name__": "snippet"})  # noqa: S102


def test_the_first_example_of_the_readme_runs(clean_dsn: str) -> None:
    snippet = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    names = {"dsn": clean_dsn, "book_id": str(uuid4())}
    exec(compile(snippet, README.name, "exec", dont_inherit=True), names)  # noqa: S102
    with psycopg.connect(clean_dsn) as connection:
        rows = connection.execute("select aggregate_id, event_type from outbox_event").fetchall()
    assert rows == [(names["book_id"], "book_changed")]


def test_service_needs_only_the_insert_privilege(connection: psycopg.Connection[Any]) -> None:
    role = sql.Identifier(f"service_{uuid4().hex[:8]}")
    # Rolled back at the end, because roles are global to the server.
    connection.execute(sql.SQL("create role {}").format(role))
    connection.execute(sql.SQL("grant insert on public.outbox_event to {}").format(role))
    connection.execute(sql.SQL("set local role {}").format(role))
    emit(connection, aggregate_type="a", aggregate_id="1", event_type="t", payload=None)
    connection.rollback()
