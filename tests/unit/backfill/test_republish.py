"""Values of the partition field that the topic provides for tombstones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.fake_topic import FakeTopic, Record

from outbox_events.contract.partitioner import partition_of
from outbox_events.errors import RefusedError
from outbox_kit.backfill.republish import read_partition_values
from outbox_kit.deployment import Deployment

PARTITIONS = 4
SEQUENCE = "0001_1"


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    return FakeTopic(monkeypatch, partitions=PARTITIONS)


@pytest.fixture
def books(deployed: Callable[..., Deployment]) -> Callable[..., Deployment]:
    """Return a function that creates a pipeline of books, whose partition is determined by the column `region`."""

    def create(*header_columns: str, partitions: int = PARTITIONS) -> Deployment:
        deployment = deployed()
        pipeline = deployment.pipeline
        book = pipeline.aggregates["book"].model_copy(update={"partition_field": "region", "partitions": partitions})
        source = pipeline.source.model_copy(update={"header_columns": list(header_columns)})
        changed = pipeline.model_copy(update={"aggregates": {"book": book}, "source": source})
        return replace(deployment, pipeline=changed)

    return create


def test_each_value_selects_the_partition_of_the_newest_record(
    topic: FakeTopic, books: Callable[..., Deployment]
) -> None:
    topic.append(*(Record(f"k{number}".encode(), b"x", SEQUENCE, number=number) for number in range(PARTITIONS)))
    topic.append(Record(b"k0", None, "0001_2", number=3))
    keys = [f"k{number}" for number in range(PARTITIONS)]
    values = read_partition_values(books(), "book", [*keys, "no record"])
    assert {key: partition_of(value.encode(), PARTITIONS) for key, value in values.items()} == {
        "k0": 3,
        "k1": 1,
        "k2": 2,
        "k3": 3,
    }


def test_uses_the_header_of_the_record(topic: FakeTopic, books: Callable[..., Deployment]) -> None:
    north = partition_of(b"north", PARTITIONS)
    other = (north + 1) % PARTITIONS
    headers = (("region", b"north"),)
    topic.append(
        Record(b"moved", b"x", SEQUENCE, number=other, column_headers=headers),
        Record(b"k", b"x", SEQUENCE, number=north, column_headers=headers),
    )
    values = read_partition_values(books("region"), "book", ["k", "moved"])
    assert values["k"] == "north"
    # The number of partitions has changed since this record was written.
    assert partition_of(values["moved"].encode(), PARTITIONS) == other
    assert read_partition_values(books(), "book", ["k"])["k"].isdecimal()


def test_refuses_another_partition_count(topic: FakeTopic, books: Callable[..., Deployment]) -> None:
    """The connector selects the partition by the number of partitions in the pipeline file."""
    topic.append(Record(b"k", b"x", SEQUENCE))
    with pytest.raises(RefusedError, match="has 4 partitions, but the pipeline file has 6"):
        read_partition_values(books(partitions=6), "book", ["k"])
