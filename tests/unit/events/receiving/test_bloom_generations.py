"""Bloom filters: error rate and memory against theory, generations, and restoring."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from outbox_events import BloomFilter
from outbox_events.errors import ConfigurationError
from outbox_events.receiving.strategies.bloom.generations import Generations, hash_of


def hashes(first: int, end: int, name: str = "id") -> list[bytes]:
    return [hash_of(f"{name}-{number}") for number in range(first, end)]


def found(generations: Generations, ids: list[bytes]) -> int:
    return sum(each in generations for each in ids)


def filled(capacity: int, error_rate: float, count: int) -> Generations:
    generations = Generations(capacity, error_rate)
    for number in range(0, count, 100):
        generations.add(hashes(number, min(number + 100, count)))
    return generations


def test_the_measured_error_rate_is_the_chosen_one_when_both_filters_are_full() -> None:
    rate, probes = 0.01, 100_000
    generations = filled(50_000, rate, 100_000)
    assert found(generations, hashes(0, 100_000)) == 100_000
    expected = 1 - (1 - rate / 2) ** 2
    deviation = math.sqrt(expected * (1 - expected) / probes)
    assert abs(found(generations, hashes(0, probes, "other")) / probes - expected) < 5 * deviation
    assert generations.measured_error_rate() == pytest.approx(expected, rel=0.05)
    assert filled(50_000, rate, 1000).measured_error_rate() < rate / 1000
    assert Generations(10, rate).measured_error_rate() == 0


def test_memory_is_that_of_theory() -> None:
    full = filled(50_000, 0.01, 50_000).full_filter(1)
    assert full is not None
    assert len(full) == pytest.approx(50_000 * -math.log(0.01 / 2) / math.log(2) ** 2 / 8, rel=0.001, abs=100)


def test_keeps_the_last_two_generations() -> None:
    generations = filled(1000, 1e-9, 2000)
    assert found(generations, hashes(0, 2000)) == 2000
    generations.add(hashes(2000, 2001))
    assert found(generations, hashes(0, 1000)) == 0
    assert found(generations, hashes(1000, 2001)) == 1001


def test_hashes_are_equal_in_every_process() -> None:
    module = "outbox_events.receiving.strategies.bloom.generations"
    code = f"from {module} import hash_of; print(hash_of('an event').hex())"
    outputs = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert outputs == {f"{hash_of('an event').hex()}\n"}


@pytest.mark.parametrize("capacity", [10, 100, 10_000])
def test_restored_filters_recognize_what_was_saved(capacity: int) -> None:
    before = filled(100, 1e-6, 100)
    saved = before.full_filter(1)
    assert saved is not None
    restored = Generations(capacity, 1e-6)
    restored.restore(saved, b"".join(hashes(100, 150)))
    assert found(restored, hashes(0, 150)) == 150
    assert found(restored, hashes(0, 1000, "other")) == 0
    restored.restore(saved, b"")
    restored.add(hashes(200, 210))
    assert found(restored, [*hashes(0, 100), *hashes(200, 210)]) == 110


def test_a_transaction_with_more_events_than_the_capacity_does_not_overfill_a_filter() -> None:
    generations = filled(10, 1e-6, 1000)
    assert found(generations, hashes(800, 1000)) == 200
    assert found(generations, hashes(0, 1000, "other")) == 0
    assert generations.measured_error_rate() < 2e-6


@pytest.mark.parametrize("options", [{"capacity": 0}, {"error_rate": 0.0}, {"error_rate": 1.0}, {"connect": "folder"}])
def test_refuses_invalid_arguments(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        BloomFilter(**{"connect": lambda: None, **options})  # type: ignore[arg-type]
