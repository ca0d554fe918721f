"""Acknowledged offsets that are stored in the metadata of a committed offset."""

from __future__ import annotations

import pytest

from outbox_events.errors import RefusedError
from outbox_kit.dead_letters.offset_metadata import Acknowledged


@pytest.mark.parametrize(
    ("single", "metadata"),
    [(set(), ""), ({7}, "acknowledged: 7"), ({7, 8, 9, 12}, "acknowledged: 7-9,12"), ({7, 9}, "acknowledged: 7,9")],
)
def test_single_offsets_survive_the_metadata(single: set[int], metadata: str) -> None:
    acknowledged = Acknowledged(5, frozenset(single))
    assert acknowledged.metadata == metadata
    assert Acknowledged.parse(5, metadata + "\0") == acknowledged


@pytest.mark.parametrize("metadata", ["", "7", "acknowledged: ", "acknowledged: x", "acknowledged: 7-", "other: 7"])
def test_ignores_the_metadata_of_others(metadata: str) -> None:
    assert Acknowledged.parse(5, metadata) == Acknowledged(5)


def test_offsets_without_a_record_do_not_keep_the_committed_offset() -> None:
    """Offsets 6 and 8 are markers of transactions."""
    assert Acknowledged(5).add([5], [5, 7, 9]) == Acknowledged(7)
    assert Acknowledged(5).add([7], [5, 7, 9]) == Acknowledged(5, frozenset({7}))
    assert Acknowledged(5, frozenset({7})).add([5], [5, 7, 9]) == Acknowledged(9)
    assert Acknowledged(5).add([5, 7, 9], [5, 7, 9]) == Acknowledged(10)
    assert Acknowledged(5).add([], []) == Acknowledged(5)


def test_refuses_metadata_that_brokers_reject() -> None:
    with pytest.raises(RefusedError, match="too many single dead letters"):
        _ = Acknowledged(0, frozenset(range(1, 3000, 2))).metadata
