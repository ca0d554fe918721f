"""Counts of the effects of receivers, each in a case in which it is not zero, and the promises that are broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of

from outbox_lab.drill.cell import CellSettings
from outbox_lab.drill.faults import FAULTS
from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.receivers.effects import EFFECT_COUNTS, EffectCounts, count_effects
from outbox_lab.drill.receivers.strategies import ONCE_PER_EVENT, ONCE_PER_RECORD, STORES_POSITIONS, STRATEGIES
from outbox_lab.drill.run import broken_promises, effect_lines

COMMITTED, ROLLED_BACK = Outcome.COMMITTED, Outcome.ROLLED_BACK
LEDGER = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED), ("c", 3, ROLLED_BACK))


def effects_of(*event_ids: str, strategy: str = "processed-events") -> EffectCounts:
    return count_effects(strategy, LEDGER, deliveries_of(*event_ids), deliveries_of("a", "b"))


def numbers(counts: EffectCounts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in EFFECT_COUNTS if getattr(counts, name)}


def broken(effects: list[str], *delivered: str, strategy: str = "processed-events") -> set[str]:
    """Return the broken promises. The effect of an event has the position of the event's first record on the topic."""
    deliveries = deliveries_of(*delivered)
    applied = [deliveries[delivered.index(event_id)] if event_id in delivered else None for event_id in effects]
    rows = [record or effect for record, effect in zip(applied, deliveries_of(*effects), strict=True)]
    return set(count_effects(strategy, LEDGER, rows, deliveries).broken)


def test_one_effect_per_committed_event_has_no_findings() -> None:
    assert (numbers(effects_of("a", "b")), effects_of("a", "b").effects) == ({}, 2)


def test_a_committed_event_without_an_effect_is_missing() -> None:
    counts = effects_of("b")
    assert (numbers(counts), counts.missing_events) == ({"missing": 1}, ("a",))


def test_a_further_effect_of_an_event_is_repeated() -> None:
    counts = effects_of("a", "a", "a", "b")
    assert (numbers(counts), counts.repeated_events) == ({"repeated": 2}, ("a",))


def test_an_effect_of_a_rolled_back_event_is_a_phantom() -> None:
    assert numbers(effects_of("c", "a", "b")) == {"phantom": 1}


def test_effects_in_another_order_and_of_another_version_or_key_are_found() -> None:
    assert numbers(effects_of("b", "a")) == {"unordered": 1, "stale": 1}
    [first, second] = deliveries = deliveries_of("a", "b")
    for other in (replace(second, version=7), replace(second, key="b")):
        assert numbers(count_effects("processed-events", LEDGER, [first, other], deliveries))["wrong"] == 1


def test_receivers_do_not_answer_for_the_sending() -> None:
    """The topic lacks `b` and has the phantom `c`."""
    assert broken(["a", "c"], "a", "c") == set()
    assert broken(["c"], "a", "c") == {"missing"}
    assert broken(["a", "c"], "a") == {"phantom"}


def test_another_event_than_on_the_topic_is_found_although_the_numbers_are_equal() -> None:
    assert broken(["a", "b", "stranger"], "a", "b", "c") == {"phantom"}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name in ONCE_PER_EVENT])
def test_an_event_that_is_twice_on_the_topic_has_one_effect(strategy: str) -> None:
    assert broken(["a", "b"], "a", "b", "b", strategy=strategy) == set()
    assert broken(["a", "b", "b"], "a", "b", "b", strategy=strategy) == {"repeated"}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name in ONCE_PER_RECORD])
def test_strategies_that_store_offsets_apply_each_record_once(strategy: str) -> None:
    deliveries = deliveries_of("a", "b", "b")

    def apply(*offsets: int) -> dict[str, int]:
        return count_effects(strategy, LEDGER, [deliveries[offset] for offset in offsets], deliveries).broken

    assert apply(0, 1, 2) == {}
    assert apply(0, 1, 1) == {"missing": 1, "repeated": 1}
    assert apply(0, 1) == {"missing": 1}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name in ONCE_PER_EVENT | ONCE_PER_RECORD])
def test_an_old_state_that_is_applied_last_is_stale(strategy: str) -> None:
    assert "stale" in broken(["a", "b", "a"], "a", "b", strategy=strategy)
    assert "stale" not in broken(["a", "b", "a"], "a", "b", "a", strategy=strategy)


def test_effects_that_can_be_repeated_must_not_be_missing() -> None:
    strategy = "without-deduplication"
    assert broken(["a", "b", "a"], "a", "b", strategy=strategy) == set()
    assert broken(["a"], "a", "b", strategy=strategy) == {"missing"}


def test_a_broken_promise_names_the_strategy() -> None:
    effects = (effects_of("a", "a"), effects_of("a", "b", strategy="stored-offsets"))
    result = result_of("cdc", "none", LEDGER, deliveries_of("a", "b"), effects=effects, receiver_kills=1)
    assert broken_promises([result]) == [
        "cdc, none: 1 missing effects with processed-events",
        "cdc, none: 1 repeated effects with processed-events",
        "cdc, none: 1 stale effects with processed-events",
    ]
    [line, _] = effect_lines(result)
    assert "2 effects under 1 kill, 0 early kills and 0 pauses: 1 missing, 1 repeated" in line


def test_groups_of_strategies_are_known() -> None:
    assert STRATEGIES.keys() >= ONCE_PER_EVENT | ONCE_PER_RECORD | STORES_POSITIONS


def test_no_receiver_runs_if_its_database_is_restored() -> None:
    cells = {fault: CellSettings("cdc", FAULTS[fault], 1, receive=True) for fault in FAULTS}
    assert {fault for fault, cell in cells.items() if not cell.strategies} == {"restore-postgres"}
    assert CellSettings("cdc", FAULTS["none"], 1).strategies == ()
