"""Source epoch of the last records of a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.kafka import source_epoch
from outbox_kit.kafka.source_epoch import highest_version
from outbox_kit.pipeline import Kafka

KAFKA = Kafka(bootstrap_servers="127.0.0.1:1")


class _Record:
    """Record as the consumer returns it."""

    def __init__(self, partition: int, epoch: int | None) -> None:
        self._partition = partition
        self._headers = [] if epoch is None else [("source_sequence", f"{epoch:04x}_0-0".encode())]

    def partition(self) -> int:
        return self._partition

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


def serve(monkeypatch: pytest.MonkeyPatch, records: Mapping[tuple[int, int], int | None]) -> list[dict[int, int]]:
    """Let the reader return epochs by partition and offset. Other offsets are markers. Return the start offsets."""
    reads: list[dict[int, int]] = []

    def read_records(
        _: object, ranges: dict[str, dict[int, Bounds]], process: Callable[[_Record], None], *, seconds: float
    ) -> None:
        assert seconds
        starts = {number: bound.first for number, bound in ranges["t"].items()}
        reads.append(starts)
        for (partition, offset), epoch in records.items():
            if partition in starts and offset >= starts[partition]:
                process(_Record(partition, epoch))

    monkeypatch.setattr(source_epoch, "read_records", read_records)
    return reads


@pytest.mark.parametrize(
    ("records", "bounds", "expected", "reads"),
    [
        ({}, {}, 0, []),
        ({}, {0: (5, 5)}, 0, []),
        ({(0, 9): 1, (1, 3): 10}, {0: (0, 10), 1: (0, 4), 2: (7, 7)}, 10, [{0: 0, 1: 0}]),
        ({(0, 9): None}, {0: (0, 10)}, 0, [{0: 0}]),
        ({(0, 5): 7, (0, 999): 1}, {0: (0, 1000)}, 1, [{0: 900}]),
        ({(0, 5): 3, (1, 995): 1}, {0: (0, 1000), 1: (0, 1000)}, 3, [{0: 900, 1: 900}, {0: 0}]),
        ({}, {0: (800, 1000)}, 0, [{0: 900}, {0: 800}]),
    ],
    ids=["no partition", "empty", "highest", "without header", "end only", "markers at the end", "markers"],
)
def test_reads_the_epoch_of_the_last_records(
    monkeypatch: pytest.MonkeyPatch,
    records: dict[tuple[int, int], int | None],
    bounds: dict[int, tuple[int, int]],
    expected: int,
    reads: list[dict[int, int]],
) -> None:
    observed = serve(monkeypatch, records)
    version = highest_version(KAFKA, "t", {number: Bounds(*bound) for number, bound in bounds.items()})
    assert version.source_epoch == expected
    assert observed == reads


def test_reads_every_record_for_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of another source can be anywhere."""
    observed = serve(monkeypatch, {(0, 5): 7, (0, 999): 1})
    assert highest_version(KAFKA, "t", {0: Bounds(2, 1000)}, complete=True).source_epoch == 7
    assert observed == [{0: 2}]
