"""Dropping superseded records before the aggregation: fewer rows, and the same result, whatever the rows are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from kafka_log import Log, as_frame, sequence
from pyspark.sql import DataFrame, SparkSession

from outbox_spark import superseded
from outbox_spark.latest import newest_per_key
from outbox_spark.superseded import is_available, without_superseded

SCHEMA = "hash long, key binary, sequence binary, offset long, value binary, _records long, _kinds int"
UNLIMITED = 1 << 30
Given = tuple[str | None, str | None, int, bytes | None]
"""key, sequence, offset, value"""


@pytest.fixture(autouse=True)
def _with_the_jar(spark: SparkSession) -> None:
    assert is_available(spark), "outbox-spark.jar is not among Spark's jars: run `make setup`"


def frame(spark: SparkSession, rows: Sequence[Given], partitions: int = 1) -> DataFrame:
    """Rows as latest.py prepares them, in tasks of their order."""
    data = [
        (len(key or ""), key and key.encode(), number and number.encode(), offset, value, 1, 1 << offset % 3)
        for key, number, offset, value in rows
    ]
    # hash: the length of the key, so that keys collide.
    return spark.createDataFrame(data, SCHEMA).coalesce(partitions)


def left(spark: SparkSession, rows: Sequence[Given], limit: int = UNLIMITED) -> list[dict[str, Any]]:
    found = [row.asDict() for row in without_superseded(frame(spark, rows), limit).collect()]
    return sorted(found, key=lambda row: (row["key"] is not None, bytes(row["key"] or b""), row["offset"]))


def test_the_newest_of_a_key_stays_with_the_counts_of_all(spark: SparkSession) -> None:
    found = left(
        spark, [("a", "1", 0, b"x"), ("b", "1", 1, b"y"), ("a", "3", 2, b"a much longer value"), ("a", "2", 4, b"z")]
    )
    assert [
        (row["key"], row["sequence"], row["offset"], row["value"], row["_records"], row["_kinds"]) for row in found
    ] == [
        (b"a", b"3", 2, b"a much longer value", 3, 0b111),
        (b"b", b"1", 1, b"y", 1, 0b010),
    ]


def test_the_sequence_counts_before_the_offset_and_none_is_the_least(spark: SparkSession) -> None:
    rows = [
        ("a", None, 9, b"none"),
        ("a", "1", 3, b"first"),
        ("a", None, 10, b"none"),
        ("a", "1", 4, b"second"),
        ("a", "1", 2, b""),
    ]
    assert [(row["offset"], row["value"]) for row in left(spark, rows)] == [(4, b"second")]


def test_bytes_of_a_sequence_compare_unsigned(spark: SparkSession) -> None:
    assert left(spark, [("a", "\u00e9", 0, b"high"), ("a", "z", 1, b"low")])[0]["value"] == b"high"


def test_keys_of_one_hash_are_told_apart(spark: SparkSession) -> None:
    assert [row["key"] for row in left(spark, [("ab", "1", 0, b""), ("ba", "1", 1, b""), ("ab", "2", 2, b"")])] == [
        b"ab",
        b"ba",
    ]


def test_records_without_a_key_all_stay(spark: SparkSession) -> None:
    assert len(left(spark, [(None, "1", 0, b"x"), (None, "1", 1, b"y"), (None, None, 2, None)])) == 3


def test_tombstones_are_records_like_others(spark: SparkSession) -> None:
    assert [row["value"] for row in left(spark, [("a", "1", 0, b"x"), ("a", "2", 1, None)])] == [None]
    assert [row["value"] for row in left(spark, [("a", "1", 0, None), ("a", "2", 1, b"x")])] == [b"x"]


def test_more_keys_than_the_table_begins_with(spark: SparkSession) -> None:
    rows = [(f"key-{number % 3_000}", "1", number, b"v") for number in range(9_000)]
    found = left(spark, rows)
    assert len(found) == 3_000
    assert all(row["offset"] >= 6_000 and row["_records"] == 3 for row in found)


def test_a_full_table_is_handed_on_and_nothing_is_lost(spark: SparkSession) -> None:
    rows = [(f"key-{number // 5 % 10}", "1", number, bytes(100)) for number in range(1_000)]
    found = left(spark, rows, limit=1_000)
    assert 10 < len(found) < 1_000
    assert sum(row["_records"] for row in found) == 1_000
    assert {bytes(row["key"]): row["offset"] for row in found} == {b"key-%d" % n: 954 + 5 * n for n in range(10)}


def test_where_no_row_is_superseded_the_rest_passes_through(spark: SparkSession) -> None:
    rows = [(f"key-{number}", "1", number, bytes(100)) for number in range(500)]
    assert [row["offset"] for row in left(spark, rows * 2, limit=1_000)] == sorted(
        [*range(500), *range(500)], key=lambda n: (f"key-{n}", n)
    )


@pytest.mark.parametrize("limit", [2_000, UNLIMITED])
@pytest.mark.parametrize("headers", [True, False])
def test_the_reduction_has_the_same_result_without_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: int, headers: bool
) -> None:
    """Random logs: replays, several partitions, tasks that hold parts of them, keys in more than one partition."""
    random_ = random.Random(limit)  # noqa: S311 - the same every time
    log = Log("test.thing", partitions=3)
    for number in range(600):
        commit = max(0, number - random_.choice([0, 0, 0, 40]))
        key = random_.choice([None, *(f"key-{n}" for n in range(40))])
        value = None if random_.random() < 0.1 else random_.randbytes(random_.randrange(60))
        log.append(key, value, sequence(commit) if headers else None, partition=random_.randrange(3))
    records = as_frame(spark, "test.thing", log.records)
    monkeypatch.setattr(superseded, "LIMIT_BYTES", limit)
    with_it = newest_per_key(records, 0).collect()
    monkeypatch.setattr(superseded, "CLASS", "io.outboxkit.spark.NotThere")
    assert not is_available(spark)
    without_it = newest_per_key(records, 0).collect()
    assert sorted(map(repr, with_it)) == sorted(map(repr, without_it))
    assert sum(row["_records"] for row in with_it) == 600
