"""Rows that are deleted before the relay reads them."""

from __future__ import annotations

import pytest

from outbox_kit.relay.unread_rows import TableProgress, unread_rows

BEFORE = TableProgress(seq=100, deleted=90, batches=7)


@pytest.mark.parametrize(
    ("after", "unread"),
    [
        (TableProgress(seq=100, deleted=90, batches=7), 0),
        (TableProgress(seq=103, deleted=93, batches=7), 3),
        (TableProgress(seq=103, deleted=90, batches=7), 0),  # open or rolled back
        (TableProgress(seq=100, deleted=95, batches=7), 0),  # deletes of old rows
        (TableProgress(seq=103, deleted=1, batches=7), 0),  # a crash has reset the statistics
        (TableProgress(seq=103, deleted=93, batches=8), 0),  # the relay reads rows
    ],
)
def test_a_row_counts_if_it_is_inserted_and_deleted_without_a_batch(after: TableProgress, unread: int) -> None:
    assert unread_rows(BEFORE, after) == unread
