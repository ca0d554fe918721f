"""Generated events and calculated results of the materialization benchmark."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import fastavro
import pytest
from tests.benchmarks.materialize.cold_process import ColdRun
from tests.benchmarks.materialize.events import ENCODED_BODIES, SCHEMA, Books, book_key, marker_key
from tests.benchmarks.materialize.report import Results, Sample, tables
from tests.benchmarks.report import Bound

from outbox_spark.kafka.ordering import SEQUENCE_LENGTH


def decoded(value: bytes | None) -> dict[str, Any]:
    assert value is not None
    assert value[:5] == b"\x00\x00\x00\x00\x07"
    schema = fastavro.parse_schema(json.loads(SCHEMA.read_text(encoding="utf-8")))
    body = io.BytesIO(value[5:])
    record = fastavro.schemaless_reader(body, schema, None)
    assert not body.read(), "bytes after the record"
    assert isinstance(record, dict)
    return record


def test_assembled_values_are_valid_avro() -> None:
    books = Books(50, 7)
    states = [(key, value) for key, value, _ in books.events(2 * ENCODED_BODIES) if value is not None]
    for key, value in states:
        assert str(decoded(value)["id"]) == key.decode()
    assert {decoded(value)["status"] for _, value in states} == {"AVAILABLE", "LENT", "LOST"}


def test_sequences_increase_with_the_required_length() -> None:
    books = Books(10, 7)
    sequences = [sequence for _, _, sequence in [*books.first_events(), *books.events(100), *books.markers(2)]]
    assert sequences == sorted(set(sequences))
    assert {len(sequence) for sequence in sequences} == {SEQUENCE_LENGTH}


def test_one_event_in_fifty_is_a_tombstone_and_keys_are_random() -> None:
    events = list(Books(100, 7).events(10_000))
    assert 120 < sum(value is None for _, value, _ in events) < 280
    per_key = Counter(key for key, _, _ in events)
    assert len(per_key) == 100
    assert 50 < min(per_key.values()) < max(per_key.values()) < 160


def test_events_are_the_same_in_every_run() -> None:
    assert list(Books(10, 7).events(100)) == list(Books(10, 7).events(100))


def test_markers_use_separate_books() -> None:
    books = Books(1000, 7)
    markers = books.markers(4)
    assert [key for key, _, _ in markers] == [marker_key(partition) for partition in range(4)]
    assert not {key for key, _, _ in markers} & {book_key(number) for number in range(1000)}
    assert decoded(markers[0][1])["author_id"] == decoded(markers[0][1])["id"]


@pytest.fixture
def results() -> Results:
    actual = Results({"cpus": 2}, events=1000, rounds=3)
    for seconds in (1.0, 9.0, 2.0):
        actual.add("read", Sample(seconds, 0.5))
    for seconds in (4.0, 4.0, 40.0):
        actual.add("postgres", Sample(seconds, 1.0))
    return actual


def test_ratios_compare_rates_of_the_median_run(results: Results) -> None:
    assert [(bound.name, bound.ratio) for bound in results.bounds] == [("postgres_vs_read", 0.5)]
    assert results.bounds[0].row()[-1] == "must"


def test_memory_at_the_largest_size(results: Results) -> None:
    results.peaks = [ColdRun(10, 1.0, 2.0, 3.0, 1.5, 0.2), ColdRun(1000, 1.0, 2.0, 3.0, 1.9, 0.2)]
    assert results.limits == [Bound("driver_peak_gb", 1.9 + 0.2, 2.0, 2.0, at_most=True)]
    assert results.limits[0].row()[-1] == "missed"


def test_rejects_tables_of_one_topic_with_different_row_counts(results: Results) -> None:
    results.check_row_count("postgres", 100)
    with pytest.raises(RuntimeError, match="'jdbc-sink': 99"):
        results.check_row_count("jdbc-sink", 99)


def test_tables_show_the_measured_values(results: Results) -> None:
    text = tables(results)
    assert "| postgres | 250 | 0.50 | 4.00 | 4.00 | 40.00 | 1000.00 |" in text
    assert "| postgres_vs_read | 0.50 | ≥ 0.40 | ≥ 0.55 | must |" in text
