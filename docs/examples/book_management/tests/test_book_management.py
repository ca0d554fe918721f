"""Component test: each committed change arrives on the topic of its aggregate, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date
from decimal import Decimal
from typing import Any

import psycopg
import pytest
import requests

from outbox_events import AvroValues, LatestState, Observation, wait_for
from outbox_kit.testing import OutboxStack

Topics = dict[str, LatestState]


@pytest.fixture
def topics(service_url: str, outbox_stack: OutboxStack) -> Iterator[Topics]:
    """Return the states that a consumer receives, by aggregate type."""
    del service_url  # after the deployment
    settings, decode = {"bootstrap.servers": outbox_stack.bootstrap_servers}, AvroValues(outbox_stack.registry_url)
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(LatestState(settings, f"books.{kind}", decode=decode))
            for kind in ("author", "book")
        }


def wait_state(states: LatestState, condition: Callable[[], bool]) -> None:
    """Read the topic until the condition holds."""

    def poll() -> Observation[bool]:
        states.load()
        return Observation(condition() or None, str(dict(states.items())))

    wait_for(f"a state in {states.topic}", poll, seconds=30)


def send(method: str, url: str, **fields: object) -> Any:  # noqa: ANN401 - JSON
    """Send a request, and return the id in its response."""
    response = requests.request(method, url, json=fields, timeout=30)
    response.raise_for_status()
    return response.json()["id"]


def test_sends_the_states_of_authors_and_books(service_url: str, topics: Topics) -> None:
    author = send("POST", f"{service_url}/authors", name="Stanisław Lem")
    book = send("POST", f"{service_url}/authors/{author}/books", title="Solaris", price="9.90", tags=["fiction"])
    send("PUT", f"{service_url}/authors/{author}", name="Stanisław Lem", country="PL", born="1921-09-12")
    send("PUT", f"{service_url}/books/{book}", title="Solaris", price=12.5, pages=204)
    wait_state(topics["author"], lambda: (topics["author"].get(author) or {}).get("country") == "PL")
    wait_state(topics["book"], lambda: (topics["book"].get(book) or {}).get("pages") == 204)
    state = topics["book"].get(book)
    assert (str(state["author_id"]), state["price"], state["tags"]) == (author, Decimal("12.50"), [])
    assert topics["author"].get(author)["born"] == date(1921, 9, 12)


def test_sends_a_moved_book_with_its_new_author(service_url: str, topics: Topics) -> None:
    author, other = (send("POST", f"{service_url}/authors", name=name) for name in ("Arkady", "Boris"))
    book = send("POST", f"{service_url}/authors/{author}/books", title="Roadside Picnic", price="9.90")
    assert send("PUT", f"{service_url}/authors/{other}/books/{book}") == book
    wait_state(topics["book"], lambda: str((topics["book"].get(book) or {}).get("author_id")) == other)


def test_removes_the_books_of_a_removed_author(service_url: str, topics: Topics) -> None:
    author = send("POST", f"{service_url}/authors", name="Ursula K. Le Guin")
    titles = ("Rocannon", "Malafrena")
    books = [send("POST", f"{service_url}/authors/{author}/books", title=title, price=9) for title in titles]
    wait_state(topics["book"], lambda: all(book in topics["book"] for book in books))
    send("DELETE", f"{service_url}/books/{books[0]}")
    send("DELETE", f"{service_url}/authors/{author}")
    wait_state(topics["book"], lambda: not any(book in topics["book"] for book in books))
    wait_state(topics["author"], lambda: author not in topics["author"])


def test_sends_nothing_for_a_rejected_request(service_url: str, outbox_stack: OutboxStack) -> None:
    unknown = "00000000-0000-4000-8000-000000000000"
    requests_and_statuses = [
        ("POST", f"authors/{unknown}/books", {"title": "Solaris", "price": 9}, 400),
        ("POST", "books", {"title": "Solaris", "price": 9}, 404),
        ("POST", "authors", {"title": "Solaris"}, 400),
        ("POST", "authors", {"name": None}, 400),
        ("PUT", f"books/{unknown}", {"title": "Solaris", "price": 9}, 404),
        ("DELETE", f"authors/{unknown}", {}, 404),
    ]
    count = "select count(*) from books.outbox_event"
    with psycopg.connect(outbox_stack.source_dsn, autocommit=True) as connection:
        before = connection.execute(count).fetchone()
        for method, path, fields, status in requests_and_statuses:
            assert requests.request(method, f"{service_url}/{path}", json=fields, timeout=30).status_code == status
        assert connection.execute(count).fetchone() == before
