"""Ids that the writers share, and the generated values."""

# ruff: noqa: S311  (repeatable random values)

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from decimal import Decimal
from random import Random
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_kit.demo import samples
from outbox_kit.demo.writer import Ids

KEYS = st.integers(0, 9).map(lambda number: UUID(int=number))


def take_all(ids: Ids, rng: Random) -> Iterator[UUID]:
    with suppress(LookupError):
        while True:
            yield ids.take(rng)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=60))
def test_ids_are_unique(calls: list[tuple[bool, UUID]]) -> None:
    ids, model = Ids([]), set[UUID]()
    for add, key in calls:
        (ids.add if add else ids.discard)(key)
        (model.add if add else model.discard)(key)
    drawn: set[UUID] = set()
    for key in take_all(ids, Random(0)):
        assert key not in drawn
        drawn.add(key)
    assert drawn == model


def test_chosen_ids_are_distinct_and_ordered() -> None:
    ids = Ids([uuid4() for _ in range(20)])
    for seed in range(50):
        chosen = ids.choose(Random(seed), 5)
        assert chosen == sorted(set(chosen))
        assert chosen


def test_raises_without_ids() -> None:
    ids = Ids([])
    with pytest.raises(LookupError):
        ids.choose(Random(0), 3)
    with pytest.raises(LookupError):
        ids.take(Random(0))


def test_id_is_reserved_by_one_thread() -> None:
    ids = Ids([uuid4() for _ in range(2000)])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda seed: list(take_all(ids, Random(seed))), range(4)))
    assert len({key for ids_of_thread in results for key in ids_of_thread}) == sum(map(len, results)) == 2000


@given(st.integers())
def test_samples_fit_the_columns(seed: int) -> None:
    rng = Random(seed)
    author, book = samples.author(rng), samples.book(rng)
    assert author.name
    assert book.title
    assert abs(book.price) <= Decimal("9999999999.99")
    assert book.price == book.price.quantize(Decimal("0.01"))
    for day in (author.born, book.published_on):
        assert day is None or date(1583, 1, 1) <= day <= date(9999, 12, 31)
    assert book.pages is None or -(2**31) <= book.pages < 2**31
    for text in (author.name, book.title, *author.pen_names, *book.tags):
        assert "\0" not in text
        text.encode()


def test_samples_are_deterministic() -> None:
    assert samples.book(Random(5)) == samples.book(Random(5))


def test_samples_include_every_edge_case() -> None:
    rng = Random(1)
    books = [samples.book(rng) for _ in range(3000)]
    assert {book.title for book in books} >= set(samples.TEXTS)
    assert {str(book.price) for book in books} >= set(map(str, samples.PRICES))
    assert {book.published_on for book in books} >= {*samples.DAYS, None}
    assert [] in [book.tags for book in books]
