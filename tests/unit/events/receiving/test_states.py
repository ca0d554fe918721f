"""The ordering rule of the latest state, for any interleaving of the partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_events.contract.source_sequence import Version
from outbox_events.latest_state.states import States

EVENTS = 6


@dataclass(frozen=True)
class FakeMessage:
    """A record of key `k` with the methods of a consumer's message."""

    number: int
    """Order of the event, which determines its sequence and value."""
    has_state: bool
    place: tuple[int, int]
    epoch: int = 1

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes | None:
        return str(self.number).encode() if self.has_state else None

    def partition(self) -> int:
        return self.place[0]

    def offset(self) -> int:
        return self.place[1]

    def headers(self) -> list[tuple[str, bytes]]:
        sequence = f"{self.epoch:04x}_{self.number:016x}-{self.number:016x}".encode()
        return [("source_sequence", b"an earlier header"), ("event_id", b"e"), ("source_sequence", sequence)]


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[FakeMessage], list[bool]]:
    """Draw the order in which records of up to three partitions are read, and choose which events are states.

    Each event is delivered at least once, and any number of events is repeated, in any order and partition.
    """
    states = draw(st.lists(st.booleans(), min_size=1, max_size=EVENTS))
    repeated = draw(st.lists(st.integers(0, len(states) - 1), max_size=10))
    order = draw(st.permutations([*range(len(states)), *repeated]))
    offsets = [0, 0, 0]
    messages = []
    for number in order:
        partition = draw(st.integers(0, 2))
        messages.append(FakeMessage(number, states[number], (partition, offsets[partition])))
        offsets[partition] += draw(st.integers(1, 3))
    return messages, states


def read(messages: list[Any], batch_size: int = 100, states: States | None = None) -> tuple[States, dict[int, int]]:
    states, positions = states or States(3600), {}
    for start in range(0, len(messages), batch_size):
        assert states.apply(messages[start : start + batch_size], positions) == []
    return states, positions


@given(deliveries(), st.integers(1, 5))
def test_any_order_ends_with_the_newest_state(delivered: tuple[list[FakeMessage], list[bool]], batch_size: int) -> None:
    messages, is_state = delivered
    states, positions = read(messages, batch_size)
    expected = {b"k": str(len(is_state) - 1).encode()} if is_state[-1] else {}
    assert {key: entry[-1] for key, entry in states.entries.items()} == expected
    assert set(states.tombstones) == ({b"k"} - expected.keys())
    assert states.unordered == set()
    assert positions == {message.place[0]: message.place[1] + 1 for message in messages}


@given(deliveries(), deliveries())
def test_a_higher_source_epoch_is_newer(
    first: tuple[list[FakeMessage], list[bool]], second: tuple[list[FakeMessage], list[bool]]
) -> None:
    later = [FakeMessage(m.number, m.has_state, m.place, epoch=2) for m in second[0]]
    expected = read(list(later))[0].entries
    for messages in ([*first[0], *later], [*later, *first[0]]):
        entries = read(messages)[0].entries
        assert {key: entry[-1] for key, entry in entries.items()} == {key: e[-1] for key, e in expected.items()}


@given(deliveries(), st.randoms(use_true_random=False))
def test_the_newest_record_has_the_highest_version(
    delivered: tuple[list[FakeMessage], list[bool]], random: Random
) -> None:
    messages = [replace(message, epoch=random.randint(0, 2), has_state=True) for message in delivered[0]]
    states, _ = read(messages)
    versions = [Version(dict(m.headers())["source_sequence"].decode(), 0, m.offset()) for m in messages]
    sequence, *rest = states.entries[b"k"][:3]
    assert (sequence.decode(), *rest) == max(versions)


def test_equal_sequences_are_ordered_by_partition_epoch_and_offset() -> None:
    """The rows of one COPY statement have the same sequence."""
    states, _ = read([FakeMessage(1, True, (0, 5)), FakeMessage(1, False, (0, 6)), FakeMessage(1, True, (0, 5))])
    assert (states.entries, set(states.tombstones)) == ({}, {b"k"})
    states.partition_epoch += 1
    read([FakeMessage(1, True, (1, 0))], states=states)
    assert (states.entries[b"k"][-1], states.tombstones) == (b"1", {})


def test_expired_tombstones_are_forgotten() -> None:
    states = States(0)
    read([FakeMessage(3, False, (0, 1))], states=states)
    states.forget_tombstones()
    assert states.tombstones == {}
    kept = States(3600)
    read([FakeMessage(3, False, (0, 1))], states=kept)
    kept.forget_tombstones()
    assert set(kept.tombstones) == {b"k"}


class OtherMessage(FakeMessage):
    """A record without a valid sequence."""

    def headers(self) -> list[tuple[str, bytes]]:
        return [("source_sequence", b"1")]


class KeylessMessage(FakeMessage):
    """A record without a key, which only a topic without compaction can contain."""

    def key(self) -> bytes:
        return None  # type: ignore[return-value]


def test_record_without_a_place_in_the_order_is_replaced_by_a_newer_one() -> None:
    states, _ = read([OtherMessage(1, True, (0, 0))])
    assert (states.entries, states.unordered) == ({}, {b"k"})
    read([FakeMessage(2, True, (0, 1)), OtherMessage(3, True, (0, 2)), FakeMessage(2, True, (0, 3))], states=states)
    assert states.unordered == {b"k"}
    read([FakeMessage(4, False, (0, 4))], states=states)
    assert (states.entries, states.unordered) == ({}, set())


def test_a_repeated_tombstone_does_not_end_the_uncertainty_of_a_key() -> None:
    deleted = FakeMessage(1, False, (0, 0))
    states, _ = read([deleted, OtherMessage(2, True, (0, 1)), FakeMessage(1, False, (0, 2))])
    assert states.unordered == {b"k"}


def test_record_without_a_key_is_ignored() -> None:
    states, positions = read([KeylessMessage(1, True, (0, 7))])
    assert (states.entries, states.ignored, positions) == ({}, 1, {0: 8})


@pytest.mark.parametrize("has_state", [True, False])
def test_a_newer_record_replaces_the_state_before_its_key_counts_as_ordered(has_state: bool) -> None:
    """Another thread that sees that the key is ordered must not see the earlier state."""
    states, _ = read([FakeMessage(1, True, (0, 0)), OtherMessage(2, True, (0, 1))])
    found: list[tuple[bytes | None, bool]] = []

    class Observed(dict[bytes, Any]):
        """The entries, and the state that another thread sees before each change."""

        def __setitem__(self, key: bytes, value: Any) -> None:  # noqa: ANN401
            found.append((self[key][-1], key in states.unordered))
            super().__setitem__(key, value)

        def pop(self, key: bytes, *default: Any) -> Any:  # noqa: ANN401
            found.append((self[key][-1], key in states.unordered))
            return super().pop(key, *default)

    states.entries = Observed(states.entries)
    read([FakeMessage(3, has_state, (0, 2))], states=states)
    assert (found, states.unordered) == ([(b"1", True)], set())
