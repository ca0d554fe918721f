"""Text of a key of several values. tests/integration/operations/test_backfill.py compares it with PostgreSQL's."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum, IntEnum
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from outbox_events import InvalidEventError, composite_id


def test_joins_the_text_of_the_values() -> None:
    owner = UUID("5a0c1b6e-7a52-4f8e-9d53-0c7be3f6a001")
    assert composite_id("EU", -17, date(2026, 11, 28), owner) == f"EU/-17/2026-11-28/{owner}"
    assert composite_id("a/b", "~1") == "a~1b/~01"
    assert composite_id(Enum("Shelf", {"A": "s"}, type=str).A, IntEnum("Row", {"B": 7}).B) == "s/7"


def test_different_values_have_different_texts() -> None:
    texts = ["".join(characters) for length in range(3) for characters in product("a/~01", repeat=length)]
    pairs = set(product(texts, repeat=2))
    assert len({composite_id(*pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("values", [(), ("a",), ("a", None), ("a", True), ("a", 1.0), ("a", datetime(2026, 1, 1))])
def test_rejects_values_whose_text_differs_in_postgresql(values: Any) -> None:  # noqa: ANN401 - invalid values
    with pytest.raises(InvalidEventError):
        composite_id(*values)
