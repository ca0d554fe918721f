"""Limits of tombstones. The tombstones of real tables and topics: tests/integration/operations/test_backfill.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_kit.errors import RefusedError
from outbox_kit.operations.deletion_guard import DEFAULT_LIMIT, DeletionLimit, Deletions, refuse_excessive

KEYS = tuple(f"k{number}" for number in range(6))
DELETIONS = Deletions("book", KEYS, "library.book", 5, 100, "library.book", table_is_empty=False)


@pytest.mark.parametrize(
    ("limit", "deletions", "allowed"),
    [
        (DEFAULT_LIMIT, DELETIONS, True),
        (DEFAULT_LIMIT, replace(DELETIONS, deleted_states=6), False),
        (DEFAULT_LIMIT, replace(DELETIONS, deleted_states=0, topic_states=0), True),
        (DEFAULT_LIMIT, replace(DELETIONS, table_is_empty=True), False),
        ("4.9%", DELETIONS, False),
        ("100%", replace(DELETIONS, table_is_empty=True), False),
        ("0%", replace(DELETIONS, deleted_states=0), True),
        ("6", replace(DELETIONS, topic_states=5, table_is_empty=True), True),
        ("5", DELETIONS, False),
        ("0", DELETIONS, False),
    ],
)
def test_limits(limit: str, deletions: Deletions, allowed: bool) -> None:
    assert DeletionLimit.parse(limit).allows(deletions) is allowed


@pytest.mark.parametrize("text", ["", "%", "-1", "5 %", "5%%", "all", "1.5", "1e3"])
def test_rejects_other_limits(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 5% or .* 200"):
        DeletionLimit.parse(text)


def test_the_hint_names_a_number_that_allows_every_type() -> None:
    empty = replace(DELETIONS, aggregate_type="author", keys=KEYS[:2], table="library.author", table_is_empty=True)
    with pytest.raises(RefusedError) as caught:
        refuse_excessive([DELETIONS, empty], DeletionLimit.parse(DEFAULT_LIMIT))
    assert "2 tombstones for author" in caught.value.message
    assert "library.author, which is empty" in caught.value.message
    assert "for book" not in caught.value.message
    number = caught.value.hint.rpartition(" ")[2]
    refuse_excessive([DELETIONS, empty], DeletionLimit.parse(number))


def test_text_shows_counts_share_and_first_keys() -> None:
    assert DELETIONS.text == (
        "6 tombstones for book, because the keys have no aggregate in library.book: they delete 5 of 100 states "
        "(5.0 %) on topic library.book; keys: k0, k1, k2, k3, k4, ..."
    )
