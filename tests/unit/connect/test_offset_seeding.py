"""Start offset of a connector, with a Connect worker in memory."""

from __future__ import annotations

import pytest
from tests.unit.connect_samples import CREATE, SEED, START, STATE, Serve, client, stored
from tests.unit.fake_connect import FakeConnect

from outbox_kit.connect.apply import apply
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.results import silent
from outbox_kit.results.changes import Change


@pytest.mark.parametrize(
    ("change", "start", "lsn", "reason"),
    [
        (CREATE, StartPosition("p", 5), 9, ""),
        (CREATE, StartPosition("p", 5, 9), 9, ""),
        (CREATE, StartPosition("p", 5), 5, ""),
        (CREATE, StartPosition("p", 5), 4, "the stored LSN is before the slot's LSN"),
        (CREATE, StartPosition("p", 5, 8), 9, "the stored LSN is beyond the server's LSN 8"),
        (
            CREATE,
            StartPosition("p", 5, 20, ignore_stored_offset=True),
            9,
            "the stored offset is from an earlier slot or connector",
        ),
        (START, StartPosition("p", 5, 8), 9, "the stored LSN is beyond the server's LSN 8"),
        (
            START,
            StartPosition("p", 5, 20, ignore_stored_offset=True),
            9,
            "the stored offset is from an earlier slot or connector",
        ),
        (STATE, StartPosition("p", 5, 8), 4, "the stored LSN is before the slot's LSN"),
        # The server and the connector advanced between the read and the stop.
        (STATE, StartPosition("p", 5, 8, ignore_stored_offset=True), 9, ""),
    ],
)
def test_uses_a_stored_offset_only_where_valid(
    serve: Serve, change: Change, start: StartPosition, lsn: int, reason: str
) -> None:
    """PostgreSQL skips rows up to an offset ahead of the server. With an offset before the slot, the task fails."""
    offsets = stored({"lsn": lsn, "lsn_commit": lsn - 1, "txId": 7})
    connect = FakeConnect(offsets={"c": offsets})
    if change != CREATE:
        connect.configs, connect.states = {"c": {"a": "1"}}, {"c": "STOPPED"}
    messages: list[str] = []
    apply(client(serve(connect)), "c", {"a": "1"}, [change], start=start, progress=messages.append)
    assert connect.offsets["c"] == (stored(SEED) if reason else offsets)
    assert connect.states == {"c": "RUNNING"}
    replaced = [f"set the offset of connector c from LSN {lsn} to the slot's LSN 5: {reason}"]
    assert messages[1:] == (replaced if reason else [])


def test_uses_the_last_commit_of_concurrent_transactions(serve: Serve) -> None:
    """The LSN of an event may be before the last commit, which the slot has already confirmed."""
    offsets = stored({"lsn": 3, "lsn_proc": 3, "lsn_commit": 5})
    connect = FakeConnect(configs={"c": {}}, states={"c": "STOPPED"}, offsets={"c": offsets})
    apply(client(serve(connect)), "c", {}, [START], start=StartPosition("p", 5), progress=silent)
    assert (connect.offsets["c"], connect.states["c"]) == (offsets, "RUNNING")
