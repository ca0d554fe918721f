"""Counts of the effects of receivers, each in a case in which it is not zero, and the promises that are broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of

from outbox_lab.drill.cell import CellSettings
from outbox_lab.drill.faults import FAULTS
from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.receivers.effects import EFFECT_COUNTS, EffectCounts, broken_by_receivers, count_effects
from outbox_lab.drill.receivers.strategies import ONCE_PER_EVENT, ONCE_PER_RECORD, STORES_POSITIONS, STRATEGIES
from outbox_lab.drill.run import broken_promises, effect_lines
from outbox_lab.drill.verdict import judge
from outbox_lab.drill.ways.catalogue import WAYS

COMMITTED, ROLLED_BACK = Outcome.COMMITTED, Outcome.ROLLED_BACK
LEDGER = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED), ("c", 3, ROLLED_BACK))


def effects_of(*event_ids: str, strategy: str = "processed-events") -> EffectCounts:
    return count_effects(strategy, LEDGER, deliveries_of(*event_ids))


def numbers(counts: EffectCounts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in EFFECT_COUNTS if getattr(counts, name)}


def broken(counts: EffectCounts, *delivered: str) -> set[str]:
    return {
        name for name, count in broken_by_receivers(counts, judge(LEDGER, deliveries_of(*delivered))).items() if count
    }


def test_one_effect_per_committed_event_has_no_findings() -> None:
    assert (numbers(effects_of("a", "b")), effects_of("a", "b").effects) == ({}, 2)


def test_a_committed_event_without_an_effect_is_missing() -> None:
    counts = effects_of("a")
    assert (numbers(counts), counts.missing_events) == ({"missing": 1}, ("b",))


def test_a_further_effect_of_an_event_is_repeated() -> None:
    counts = effects_of("a", "b", "a", "a")
    assert (numbers(counts), counts.repeated_events) == ({"repeated": 2}, ("a",))


def test_an_effect_of_a_rolled_back_event_is_a_phantom() -> None:
    assert numbers(effects_of("a", "b", "c")) == {"phantom": 1}


def test_effects_in_another_order_and_of_another_version_are_found() -> None:
    assert numbers(effects_of("b", "a")) == {"unordered": 1}
    [first, second] = deliveries_of("a", "b")
    assert numbers(count_effects("processed-events", LEDGER, [first, replace(second, version=7)])) == {"wrong": 1}


def test_receivers_do_not_answer_for_the_sending() -> None:
    """The topic lacks `b` and has the phantom `c`."""
    assert broken(effects_of("a", "c"), "a", "c") == set()
    assert broken(effects_of("c"), "a", "c") == {"missing"}
    assert broken(effects_of("a", "c"), "a") == {"phantom"}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name in ONCE_PER_EVENT])
def test_an_event_that_is_twice_on_the_topic_has_one_effect(strategy: str) -> None:
    assert broken(effects_of("a", "b", strategy=strategy), "a", "b", "b") == set()
    assert broken(effects_of("a", "b", "b", strategy=strategy), "a", "b", "b") == {"repeated"}


def test_stored_offsets_apply_each_record_once() -> None:
    assert broken(effects_of("a", "b", "b", strategy="stored-offsets"), "a", "b", "b") == set()
    assert broken(effects_of("a", "b", "b", strategy="stored-offsets"), "a", "b") == {"repeated"}
    assert broken(effects_of("a", "b", strategy="stored-offsets"), "a", "b", "b") == {"repeated"}


def test_without_deduplication_effects_can_be_repeated_but_not_missing() -> None:
    assert broken(effects_of("a", "b", "b", strategy="without-deduplication"), "a", "b") == set()
    assert broken(effects_of("a", strategy="without-deduplication"), "a", "b") == {"missing"}


def test_a_broken_promise_names_the_strategy() -> None:
    effects = (effects_of("a", "a"), effects_of("a", "b", strategy="stored-offsets"))
    result = result_of("cdc", "none", LEDGER, deliveries_of("a", "b"), effects=effects, receiver_kills=1)
    assert broken_promises([result]) == [
        "cdc, none: 1 missing effects with processed-events",
        "cdc, none: 1 repeated effects with processed-events",
    ]
    [line, _] = effect_lines(result)
    assert "2 effects under 1 kill: 1 missing, 1 repeated" in line


def test_groups_of_strategies_are_known() -> None:
    assert STRATEGIES.keys() >= ONCE_PER_EVENT | ONCE_PER_RECORD | STORES_POSITIONS


def test_no_receiver_runs_if_its_database_is_restored() -> None:
    cells = {fault: CellSettings(WAYS["cdc"], FAULTS[fault], 1, receive=True) for fault in FAULTS}
    assert {fault for fault, cell in cells.items() if not cell.strategies} == {"restore-postgres"}
    assert CellSettings(WAYS["cdc"], FAULTS["none"], 1).strategies == ()
