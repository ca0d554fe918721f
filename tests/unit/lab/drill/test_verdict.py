"""Counts of the verdict, each in a case in which it is not zero."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.lab.drill.samples import deliveries_of, ledger_of

from outbox_events.contract.partitioner import partition_of
from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.observer import merge, missed
from outbox_lab.drill.verdict import count_by_fault, delays_over_time, judge

COMMITTED, ROLLED_BACK, UNKNOWN = Outcome.COMMITTED, Outcome.ROLLED_BACK, Outcome.UNKNOWN


def test_a_perfect_delivery_has_no_findings() -> None:
    verdict = judge(ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED)), deliveries_of("a", "b"))
    findings = verdict.lost, verdict.phantom, verdict.early, verdict.duplicated, verdict.unordered
    assert (verdict.committed, verdict.delivered, *findings) == (2, 2, 0, 0, 0, 0, 0)


def test_a_committed_event_that_was_not_delivered_is_lost() -> None:
    verdict = judge(ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED)), deliveries_of("b"))
    assert (verdict.lost, verdict.lost_events) == (1, ("a",))


def test_a_delivered_event_of_a_rollback_or_of_no_transaction_is_a_phantom() -> None:
    verdict = judge(ledger_of(("a", 1, ROLLED_BACK)), deliveries_of("a", "stranger"))
    assert (verdict.phantom, verdict.phantom_events) == (2, ("a", "stranger"))


def test_an_event_with_an_unknown_outcome_is_neither_lost_nor_phantom() -> None:
    for deliveries in (deliveries_of("a"), deliveries_of()):
        verdict = judge(ledger_of(("a", 1, UNKNOWN)), deliveries)
        assert (verdict.unresolved, verdict.lost, verdict.phantom) == (1, 0, 0)


def test_further_deliveries_are_duplicates_and_not_unordered() -> None:
    ledger = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED))
    verdict = judge(ledger, deliveries_of("a", "b", "a", "b"))
    assert (verdict.duplicated, verdict.unordered) == (2, 0)


def test_a_first_delivery_after_a_newer_version_is_unordered() -> None:
    ledger = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED), ("c", 3, COMMITTED))
    assert judge(ledger, deliveries_of("c", "a", "b")).unordered == 2


def test_an_event_that_was_read_before_its_row_is_early() -> None:
    verdict = judge(ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED)), deliveries_of("a", "b", early=("b",)))
    assert verdict.early == 1


def test_delays_are_from_commit_to_first_delivery() -> None:
    ledger, deliveries = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED)), deliveries_of("a", "b", "b")
    assert delays_over_time(ledger, deliveries) == [(0, 10.0), (1, 9.0)]
    delays = judge(ledger, deliveries).delays
    assert (delays.p50, delays.p99, delays.maximum) == (9.0, 10.0, 10.0)


@pytest.mark.parametrize("is_restore", [False, True])
def test_an_undone_event_is_lost_unless_a_backup_was_restored_and_a_phantom_if_delivered(is_restore: bool) -> None:
    for deliveries in (deliveries_of("a"), deliveries_of()):
        verdict = judge(ledger_of(("a", 1, Outcome.UNDONE)), deliveries, is_restore=is_restore)
        found = verdict.undone, verdict.committed, verdict.lost, verdict.phantom
        assert found == (1, 0, 0 if is_restore else 1, len(deliveries))


def test_a_key_whose_last_record_is_old_is_stale() -> None:
    ledger = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED))
    assert judge(ledger, deliveries_of("a", "b", "b")).stale == 0
    verdict = judge(ledger, deliveries_of("a", "b", "a"))
    assert (verdict.stale, verdict.unordered, verdict.lost) == (1, 0, 0)
    assert judge(ledger, deliveries_of("a", "b", "stranger")).stale == 1


def test_an_unresolved_event_can_be_the_last_record_of_a_key() -> None:
    assert judge(ledger_of(("a", 1, COMMITTED), ("b", 2, UNKNOWN)), deliveries_of("a", "b")).stale == 0


def test_the_key_of_another_account_is_wrong() -> None:
    [right] = deliveries_of("a")
    verdict = judge(ledger_of(("a", 1, COMMITTED)), [right, replace(right, key="b")])
    assert (verdict.wrong_key, verdict.wrong, verdict.lost, verdict.stale) == (1, 0, 0, 0)


def test_a_record_in_a_partition_that_the_partitioner_does_not_select_is_misplaced() -> None:
    [delivery] = deliveries_of("a")
    partition = partition_of(b"a", 4)
    for actual, count in ((partition, 0), ((partition + 1) % 4, 1)):
        placed = replace(delivery, partition=actual)
        assert judge(ledger_of(("a", 1, COMMITTED)), [placed], partitions=4).misplaced == count
        assert judge(ledger_of(("a", 1, COMMITTED)), [placed]).misplaced == 0


def test_lost_events_belong_to_the_outage_in_which_they_were_committed() -> None:
    """The events are committed at times 0 to 3."""
    ledger = ledger_of(*((event_id, 1, COMMITTED) for event_id in "abcd"))
    assert count_by_fault(ledger, "abcd", [0.5, 2.5]) == (1, 3)
    assert count_by_fault(ledger, "d", [0.5, 2.5]) == (0, 1)
    assert count_by_fault(ledger, ["stranger"], [0.5, 2.5]) == (0, 1)
    assert count_by_fault(ledger, "a", []) == ()


def test_another_version_or_a_tombstone_in_place_of_a_state_is_wrong() -> None:
    [right] = deliveries_of("a")
    for version in (2, None):
        verdict = judge(ledger_of(("a", 1, COMMITTED)), [right, replace(right, version=version)])
        assert (verdict.wrong, verdict.lost, verdict.duplicated) == (1, 0, 1)


def test_a_record_that_only_the_second_reader_has_is_delivered_without_a_delay() -> None:
    ledger = ledger_of(("a", 1, COMMITTED), ("b", 2, COMMITTED), ("c", 3, COMMITTED))
    observed = deliveries_of("a", "b", "c")
    read = [replace(delivery, received_at=None, is_early=None) for delivery in observed]
    del observed[1]
    verdict = judge(ledger, merge(observed, read))
    assert (verdict.delivered, verdict.lost, verdict.duplicated, verdict.unordered) == (3, 0, 0, 0)
    assert delays_over_time(ledger, merge(observed, read)) == [(0, 10.0), (2, 8.0)]


def test_a_record_that_compaction_removed_before_the_second_reading_remains() -> None:
    observed = deliveries_of("a", "b", "a")
    assert merge(observed, observed[1:]) == observed
    assert missed(observed, observed[1:]) == []
