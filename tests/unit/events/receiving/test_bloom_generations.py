"""Bloom filters: error rate and memory against theory, generations, and files."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outbox_events.errors import RefusedError
from outbox_events.receiving.partition_states import PartitionState
from outbox_events.receiving.strategies.bloom.partition_filters import (
    Generations,
    InvalidFilterError,
    Missing,
    PartitionFilters,
    SavedFilter,
    filter_path,
    read_filter,
    stable_hash,
    write_filter,
)

SOURCE = ("topic", 3)
STATE = PartitionState("id", 0, 1000)


def filled(capacity: int, error_rate: float, count: int) -> Generations:
    generations = Generations(capacity, error_rate)
    for number in range(count):
        generations.add(stable_hash(f"id-{number}"))
    return generations


def filters(folder: Path, missing: Missing = "start-empty", capacity: int = 100) -> PartitionFilters:
    opened = PartitionFilters(folder, capacity=capacity, error_rate=1e-6, missing=missing)
    opened.group = "group/a"
    return opened


def test_recognizes_every_id_at_the_chosen_error_rate() -> None:
    rate, probes = 0.01, 100_000
    generations = filled(50_000, rate, 100_000)  # both generations are full, where the rate is highest
    assert all(stable_hash(f"id-{number}") in generations for number in range(100_000))
    found = sum(stable_hash(f"other-{number}") in generations for number in range(probes))
    expected = 1 - (1 - rate / 2) ** 2
    deviation = math.sqrt(expected * (1 - expected) / probes)
    assert abs(found / probes - expected) < 5 * deviation, found


def test_memory_is_that_of_theory() -> None:
    full = filled(50_000, 0.01, 100_000)
    bits = 2 * 50_000 * -math.log(0.01 / 2) / math.log(2) ** 2
    assert sum(map(len, full.save())) == pytest.approx(bits / 8, rel=0.001, abs=100)


def test_keeps_the_last_two_generations() -> None:
    generations = filled(1000, 1e-9, 2000)
    assert all(stable_hash(f"id-{number}") in generations for number in range(2000))
    generations.add(stable_hash("id-2000"))
    assert not any(stable_hash(f"id-{number}") in generations for number in range(1000))
    assert all(stable_hash(f"id-{number}") in generations for number in range(1000, 2001))


def test_hashes_are_equal_in_every_process() -> None:
    module = "outbox_events.receiving.strategies.bloom.partition_filters"
    code = f"from {module} import stable_hash; print(stable_hash('an event'))"
    outputs = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert outputs == {f"{stable_hash('an event')}\n"}


@pytest.mark.parametrize("count", [50, 150])
def test_a_saved_filter_is_restored_with_its_position(tmp_path: Path, count: int) -> None:
    before = filters(tmp_path)
    opened = before.open(SOURCE, STATE, None)
    for number in range(count):
        opened.learn(stable_hash(f"id-{number}"), number)
    before.save([SOURCE])
    restored = filters(tmp_path).open(SOURCE, STATE, count)
    assert restored.next_offset == count
    assert restored.generations.count == opened.generations.count
    assert all(stable_hash(f"id-{number}") in restored.generations for number in range(count))
    assert stable_hash("other") not in restored.generations


def test_a_filter_of_another_capacity_is_not_overfilled(tmp_path: Path) -> None:
    before = filters(tmp_path, capacity=10)
    before.open(SOURCE, STATE, None).learn(stable_hash("1"), 0)
    before.save([SOURCE])
    restored = filters(tmp_path, capacity=10_000).open(SOURCE, STATE, 1).generations
    for number in range(2, 2000):
        restored.add(stable_hash(str(number)))
    assert all(stable_hash(str(number)) in restored for number in range(1, 2000))
    assert not any(stable_hash(f"other-{number}") in restored for number in range(1000))


def test_events_after_the_end_of_a_partition_that_lost_records_are_new(tmp_path: Path) -> None:
    assert filters(tmp_path).open(SOURCE, STATE, 900).handled_before == 900
    assert filters(tmp_path).open(SOURCE, replace(STATE, end=500), 900).handled_before == 500


def test_a_file_of_another_topic_id_is_discarded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = filters(tmp_path)
    before.open(SOURCE, STATE, None).learn(stable_hash("1"), 0)
    before.save(before)
    opened = filters(tmp_path).open(SOURCE, replace(STATE, topic_id="another id"), None)
    assert (opened.next_offset, stable_hash("1") in opened.generations) == (None, False)
    assert "starting with an empty filter" in caplog.text
    with pytest.raises(RefusedError, match="partition 3"):
        filters(tmp_path, "refuse").open(SOURCE, replace(STATE, topic_id="another id"), None)


@pytest.mark.parametrize("changed", [0, 20, 60, -1])
def test_a_damaged_file_is_discarded(tmp_path: Path, changed: int) -> None:
    path = filter_path(tmp_path, "g", SOURCE)
    write_filter(path, SavedFilter("id", 5, 0, 1, 10, b"newer", b"older"))
    assert read_filter(path) == SavedFilter("id", 5, 0, 1, 10, b"newer", b"older")
    content = bytearray(path.read_bytes())
    content[changed] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidFilterError):
        read_filter(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidFilterError):
        read_filter(path)


def test_a_missing_file_is_refused_only_if_events_were_handled(tmp_path: Path) -> None:
    filters(tmp_path, "refuse").open(SOURCE, STATE, None)
    with pytest.raises(RefusedError, match="does not exist"):
        filters(tmp_path, "refuse").open(SOURCE, STATE, 5)


def test_a_folder_that_cannot_be_written_does_not_stop_the_consumer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    unusable = filters(tmp_path / "file" / "folder", capacity=10)
    with pytest.raises(NotADirectoryError):
        unusable.open(SOURCE, STATE, None)
    writable = filters(tmp_path / "folder", capacity=10)
    writable.open(SOURCE, STATE, None).learn(stable_hash("1"), 0)
    (tmp_path / "folder").write_text("")
    writable.save([SOURCE])
    assert "cannot save the filter" in caplog.text
