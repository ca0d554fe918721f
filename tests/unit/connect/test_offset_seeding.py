"""Start offset of a connector, against a real HTTP server with scripted responses of Connect."""

from __future__ import annotations

import pytest
from tests.unit.connect.test_apply import (
    CREATE,
    DONE,
    OFFSETS,
    RESUME,
    SEEDING,
    START,
    STATE,
    STOPPED,
    Serve,
    client,
)
from tests.unit.support import Script

from outbox_kit.changes import Change
from outbox_kit.connect.apply import apply
from outbox_kit.connect.offset_seeding import Start
from outbox_kit.progress import silent


@pytest.mark.parametrize(
    ("change", "start", "lsn", "why"),
    [
        (CREATE, Start("p", 5), 9, ""),
        (CREATE, Start("p", 5, 9), 9, ""),
        (CREATE, Start("p", 5), 5, ""),
        (CREATE, Start("p", 5), 4, "it is before the slot"),
        (CREATE, Start("p", 5, 8), 9, "the server is only at 8"),
        (CREATE, Start("p", 5, 20, ignore_stored=True), 9, "it belongs to an earlier connector"),
        (START, Start("p", 5, 8), 9, "the server is only at 8"),
        (START, Start("p", 5, 20, ignore_stored=True), 9, "it belongs to an earlier connector"),
        (STATE, Start("p", 5, 8), 4, "it is before the slot"),
        # Server and connector advanced between the read and the stop.
        (STATE, Start("p", 5, 8, ignore_stored=True), 9, ""),
    ],
)
def test_uses_a_stored_offset_only_where_valid(serve: Serve, change: Change, start: Start, lsn: int, why: str) -> None:
    """From beyond the server PostgreSQL skips every row up to there in silence; before the slot the task FAILED."""
    began: Script = {CREATE: [(201, {}), STOPPED], START: [STOPPED], STATE: [STOPPED, DONE, STOPPED]}[change]
    retained = {"offsets": [{"partition": {"server": "p"}, "offset": {"lsn": lsn, "lsn_commit": lsn - 1, "txId": 7}}]}
    server = serve([*began, (200, retained), *([(200, {})] if why else []), DONE])
    messages: list[str] = []
    apply(client(server), "c", {"a": "1"}, [change], start=start, progress=messages.append)
    assert server.seen[len(began) :] == ([OFFSETS, SEEDING, RESUME] if why else [OFFSETS, RESUME])
    assert messages[1:] == ([f"set connector c to the slot's LSN 5 instead of its stored {lsn}: {why}"] if why else [])


def test_uses_the_last_commit_of_concurrent_transactions(serve: Serve) -> None:
    """An event may be before the last commit, which the slot has reached already."""
    offset = {"lsn": 3, "lsn_proc": 3, "lsn_commit": 5}
    server = serve([STOPPED, (200, {"offsets": [{"partition": {"server": "p"}, "offset": offset}]}), DONE])
    apply(client(server), "c", {}, [START], start=Start("p", 5), progress=silent)
    assert SEEDING not in server.seen
