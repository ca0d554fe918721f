"""offsets reset: effect of a move, order of the requests to Connect, state after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connect.samples import listing
from tests.unit.operations.samples import positions
from tests.unit.operations.test_lifecycle import RUNNING, STOPPED
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.operations import lifecycle, offsets
from outbox_kit.operations.lag import Positions
from outbox_kit.operations.offsets import OffsetChange, refuse_unreachable
from outbox_kit.pipeline import HttpService, Lock

PATH = "/connectors/library-outbox"
OWN = {"server": "library"}
Play = Callable[..., tuple[Deployment, ScriptedServer]]


def at(*entries: tuple[dict[str, str], int]) -> tuple[int, object]:
    """Return Connect's response to GET offsets."""
    return 200, {"offsets": [{"partition": partition, "offset": seed(lsn)} for partition, lsn in entries]}


STANDS = at((OWN, 1200))
SET = at((OWN, 1000))
NO_BODY: tuple[int, object] = (204, None)
OK: tuple[int, object] = (200, {"message": "ok"})


@pytest.fixture
def play(
    deployed: Callable[..., Deployment],
    serve: Callable[[Script], ScriptedServer],
    lock: Lock,
    monkeypatch: pytest.MonkeyPatch,
) -> Play:
    """Return a deployment whose Connect has scripted responses; offsets are read in this order, the last repeatedly."""
    monkeypatch.setattr(connect_lifecycle, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(lifecycle, "wait_until_reading", lambda _: None)

    @contextmanager
    def connected(_: object) -> Iterator[None]:
        yield None

    def start(script: Script, *read: Positions) -> tuple[Deployment, ScriptedServer]:
        looks = list(read or (positions(1200),))
        monkeypatch.setattr(offsets, "refuse_other_source", lambda _: (lock, None))
        monkeypatch.setattr(offsets, "read_positions", lambda *_: looks.pop(0) if len(looks) > 1 else looks[0])
        monkeypatch.setattr(offsets, "count_rows", lambda *_: 3)
        monkeypatch.setattr(offsets.postgres_client, "connected", connected)
        monkeypatch.setattr(offsets, "wait_inactive", lambda *_: None)
        server = serve(script)
        return deployed(connect=HttpService(url=server.url)), server

    return start


def writes(server: ScriptedServer) -> list[tuple[str, Any]]:
    return [(f"{request.method} {request.path}", request.body) for request in server.seen if request.method != "GET"]


def looks(state: tuple[int, object], offsets_: tuple[int, object] = STANDS) -> list[tuple[int, object]]:
    return [listing({"a": "b"}, state[1]), offsets_]


PATCHED = (f"PATCH {PATH}/offsets", {"offsets": [{"partition": OWN, "offset": seed(1000)}]})
STOP, RESUME, DELETE = (f"PUT {PATH}/stop", None), (f"PUT {PATH}/resume", None), (f"DELETE {PATH}/offsets", None)


def test_stop_back_up_reset_resume(play: Play) -> None:
    script = [*looks(RUNNING), *looks(RUNNING), NO_BODY, STOPPED, *looks(STOPPED), OK, SET, NO_BODY, RUNNING]
    deployment, server = play(script)
    messages: list[str] = []
    done = offsets.reset(deployment, None, messages.append)
    assert writes(server) == [STOP, PATCHED, RESUME]
    assert (done.before, done.after, done.rows, done.resumed) == (1200, 1000, 3, True)
    assert json.loads(done.backup.read_text())["offsets"][0]["offset"] == seed(1200)
    backed_up = next(number for number, message in enumerate(messages) if str(done.backup) in message)
    moved = messages.index("set the offset of connector library-outbox")
    assert backed_up < moved
    assert any("3 outbox rows in 200 bytes of WAL" in message for message in messages[:moved])


def test_a_stopped_connector_stays_stopped(play: Play) -> None:
    script = [*looks(STOPPED), *looks(STOPPED), NO_BODY, STOPPED, *looks(STOPPED), OK, SET]
    deployment, server = play(script)
    assert offsets.reset(deployment, None, lambda _: None).resumed is False
    assert writes(server) == [STOP, PATCHED]


def test_offsets_of_another_prefix_are_deleted_first(play: Play) -> None:
    both = at((OWN, 1200), ({"server": "old"}, 9))
    script = [*looks(STOPPED), *looks(STOPPED), NO_BODY, STOPPED, *looks(STOPPED, both), OK, OK, SET]
    deployment, server = play(script)
    offsets.reset(deployment, None, lambda _: None)
    assert writes(server) == [STOP, DELETE, PATCHED]


@pytest.mark.parametrize(("state", "last"), [(RUNNING, [STOP, RESUME]), (STOPPED, [STOP])])
def test_rejects_a_slot_that_advances_before_the_stop(
    play: Play, state: tuple[int, object], last: list[object]
) -> None:
    script = [*looks(state), *looks(state), NO_BODY, STOPPED, *looks(STOPPED), NO_BODY, RUNNING]
    deployment, server = play(script, positions(1200), positions(1200, confirmed=1300))
    with pytest.raises(RefusedError, match="is ahead of the connector"):
        offsets.reset(deployment, None, lambda _: None)
    assert writes(server) == last


def fails(*_: object) -> None:
    raise ConfigurationError("cannot write", "")


@pytest.mark.parametrize(("state", "last"), [(RUNNING, [STOP, RESUME]), (STOPPED, [STOP])])
@pytest.mark.parametrize("failing", ["backup", "count_rows"])
def test_a_failure_after_the_stop_restores_the_state(
    play: Play, monkeypatch: pytest.MonkeyPatch, failing: str, state: tuple[int, object], last: list[object]
) -> None:
    script = [*looks(state), *looks(state), NO_BODY, STOPPED, *looks(STOPPED), NO_BODY]
    deployment, server = play(script)
    monkeypatch.setattr(*((offsets.offset_backup, "write") if failing == "backup" else (offsets, "count_rows")), fails)
    with pytest.raises(ConfigurationError, match="cannot write"):
        offsets.reset(deployment, None, lambda _: None)
    assert writes(server) == last


def test_a_failed_resume_is_reported_and_the_first_error_raised(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [*looks(RUNNING), *looks(RUNNING), NO_BODY, STOPPED, *looks(STOPPED), (500, {"message": "no leader"})]
    deployment, _ = play(script)
    monkeypatch.setattr(offsets.offset_backup, "write", fails)
    messages: list[str] = []
    with pytest.raises(ConfigurationError, match="cannot write"):
        offsets.reset(deployment, None, messages.append)
    assert "stays STOPPED, start it with `outbox resume`" in messages[-1]


def test_rejected_preview_does_not_stop_the_connector(play: Play, tmp_path: Path) -> None:
    deployment, server = play([*looks(RUNNING), *looks(RUNNING)], positions(900))
    with pytest.raises(RefusedError, match="is ahead of the connector"):
        offsets.reset(deployment, None, lambda _: None)
    with pytest.raises(RefusedError):
        offsets.preview(deployment, None)
    assert writes(server) == []
    assert list(tmp_path.glob("*.offsets.*")) == []


def test_reports_an_offset_that_connect_does_not_return(play: Play) -> None:
    script = [*looks(STOPPED), *looks(STOPPED), NO_BODY, STOPPED, *looks(STOPPED), OK, STANDS]
    deployment, _ = play(script)
    with pytest.raises(RefusedError, match="does not return the offset"):
        offsets.reset(deployment, None, lambda _: None)


def test_passes_skip(play: Play) -> None:
    deployment, _ = play(looks(RUNNING), positions(900))
    assert offsets.preview(deployment, None, skip=True).loses


@pytest.mark.parametrize(
    ("before", "after", "loses", "countable", "fragment"),
    [
        (1000, 1000, False, True, "nothing is sent again, and nothing is lost"),
        (1200, 1000, False, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are sent again"),
        (1000, 1200, True, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are SKIPPED"),
        # The slot was recreated beyond the connector's offset: the WAL in between was removed.
        (900, 1000, True, False, "3 outbox rows in 100 bytes of WAL between 0/384 and 0/3E8 are SKIPPED"),
        (None, 1000, False, True, "nothing is sent again, and nothing is lost"),
        (None, 1200, True, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are SKIPPED"),
    ],
)
def test_effect_of_a_move(before: int | None, after: int, loses: bool, countable: bool, fragment: str) -> None:
    move = OffsetChange(before, after, confirmed=1000)
    assert (move.loses, move.countable) == (loses, countable)
    assert move.describe(3).startswith(fragment)


def test_effect_of_a_move_whose_rows_are_not_counted() -> None:
    assert OffsetChange(1200, 1000, 1000).describe(None).startswith("an unknown number of outbox rows in 200 bytes")


@pytest.mark.parametrize(
    ("actual", "target", "message"),
    [
        (positions(), 999, "is below the slot's confirmed position 0/3E8"),
        (positions(), 5001, "is beyond the server's position 0/1388"),
        (positions(), 1001, "is ahead of the connector"),
        (positions(connector=900), 1000, "is ahead of the connector"),
        (positions(confirmed=None), 1000, "the slot does not exist"),
    ],
)
def test_rejects_an_offset_that_would_lose_rows(actual: Positions, target: int, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        refuse_unreachable(actual, target, skip=False)
    assert refused.value.hint


@pytest.mark.parametrize("target", [999, 5001])
def test_rejects_offsets_outside_the_slot_also_with_skip(target: int) -> None:
    with pytest.raises(RefusedError):
        refuse_unreachable(positions(), target, skip=True)


@pytest.mark.parametrize(("target", "skip"), [(1000, False), (1200, False), (1201, True), (5000, True)])
def test_accepts_offsets_inside_the_slot(target: int, skip: bool) -> None:
    assert refuse_unreachable(positions(connector=1200), target, skip=skip) == OffsetChange(1200, target, 1000)
