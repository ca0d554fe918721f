"""Snapshots of the latest state: the saved content is restored, and nothing else."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_events.latest_state import snapshot
from outbox_events.latest_state.reader import TopicDescription
from outbox_events.latest_state.snapshot import Position, UnusableSnapshotError
from outbox_events.latest_state.states import States

TOPIC = TopicDescription("id-1", {0: 0, 1: 3}, {0: 9, 1: 9})
POSITION = Position("library.author", "id-1", {0: 9, 1: 3}, 2, 1_000.0)
VERSIONS = st.tuples(st.binary(max_size=38), st.integers(0, 2**31), st.integers(0, 2**63 - 1), st.integers(0, 2**31))


def states_of(key: bytes = b"a", value: bytes = b"1") -> States:
    states = States(60)
    states.entries[key] = (b"sequence", 0, 5, 0, value)
    return states


@given(
    st.dictionaries(st.binary(), st.tuples(VERSIONS, st.binary())),
    st.dictionaries(st.binary(), st.tuples(VERSIONS, st.floats(0, 2**40))),
    st.sets(st.binary()),
)
def test_restores_what_was_saved(
    entries: dict[bytes, tuple[tuple[bytes, int, int, int], bytes]],
    tombstones: dict[bytes, tuple[tuple[bytes, int, int, int], float]],
    unordered: set[bytes],
) -> None:
    states, restored = States(60), States(60)
    states.entries = {key: (*version, value) for key, (version, value) in entries.items()}
    states.tombstones = {key: (*version, forget_at) for key, (version, forget_at) in tombstones.items()}
    states.unordered = unordered
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        snapshot.save(path, POSITION, states)
        assert snapshot.load(path, restored) == POSITION
        assert [file.name for file in path.parent.iterdir()] == ["snapshot"]
    assert (restored.entries, restored.unordered) == (states.entries, unordered)
    assert list(restored.tombstones.items()) == list(states.tombstones.items())  # also in the same order
    assert restored.partition_epoch == 2


def restored_keys(path: Path, topic: str = "library.author", description: TopicDescription = TOPIC) -> set[bytes]:
    states = States(60)
    position = snapshot.restore(path, topic, description, 60, states)
    assert (position is None) == (not states.entries)
    return set(states.entries)


def save(path: Path, *, age_s: float = 5) -> None:
    snapshot.save(path, replace(POSITION, read_until=time.time() - age_s), states_of())


def test_snapshot_that_fits_the_topic(tmp_path: Path) -> None:
    save(tmp_path / "snapshot")
    assert restored_keys(tmp_path / "snapshot") == {b"a"}
    grown = replace(TOPIC, starts={0: 0, 1: 0, 2: 0}, ends={0: 9, 1: 9, 2: 1})
    assert restored_keys(tmp_path / "snapshot", description=grown) == {b"a"}


@pytest.mark.parametrize(
    ("topic", "description"),
    [
        ("library.book", TOPIC),
        ("library.author", replace(TOPIC, id="id-2")),
        ("library.author", replace(TOPIC, ends={0: 8, 1: 9})),  # the log was truncated
        ("library.author", replace(TOPIC, starts={0: 0, 1: 4})),  # unread records were deleted
        ("library.author", replace(TOPIC, starts={0: 0}, ends={0: 9})),
    ],
)
def test_snapshot_that_does_not_fit_the_topic(tmp_path: Path, topic: str, description: TopicDescription) -> None:
    save(tmp_path / "snapshot")
    assert restored_keys(tmp_path / "snapshot", topic, description) == set()


@pytest.mark.parametrize("age_s", [61, -3600])
def test_snapshot_that_is_too_old_or_from_the_future(
    tmp_path: Path, age_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path / "snapshot", age_s=age_s)
    with caplog.at_level(logging.WARNING):
        assert restored_keys(tmp_path / "snapshot") == set()
    assert len(caplog.records) == 1


@given(st.data())
def test_no_damage_is_read(data: st.DataObject) -> None:
    """A changed byte is either detected or has no effect, such as a byte of an unused page."""
    with tempfile.TemporaryDirectory() as folder:
        path, restored = Path(folder) / "snapshot", States(60)
        snapshot.save(path, POSITION, states_of(value=b"x" * 9000))
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        try:
            position = snapshot.load(path, restored)
        except UnusableSnapshotError:
            return
    assert (position, restored.entries) == (POSITION, states_of(value=b"x" * 9000).entries)


def test_failed_save_leaves_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "snapshot"
    save(path)

    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError):  # noqa: PT011 - the error of the operating system
        snapshot.save(path, POSITION, states_of(b"b"))
    assert restored_keys(path) == {b"a"}
    assert [file.name for file in tmp_path.iterdir()] == ["snapshot"]
