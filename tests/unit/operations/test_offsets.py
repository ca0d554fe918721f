"""reset: in which order what is asked of Connect, and what is left behind when it is refused."""

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
from outbox_kit.connect.state import seed
from outbox_kit.deployment import Deployment
from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.operations import lifecycle, offsets
from outbox_kit.operations.lag import Positions
from outbox_kit.pipeline import HttpService, Lock

PATH = "/connectors/library-outbox"
OWN = {"server": "library"}
Play = Callable[..., tuple[Deployment, ScriptedServer]]


def at(*entries: tuple[dict[str, str], int]) -> tuple[int, object]:
    """Connect's answer to GET offsets."""
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
    """A deployment whose Connect plays a script; positions are read in this order, the last is repeated."""
    monkeypatch.setattr(connect_lifecycle, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(lifecycle, "wait_reading", lambda _: None)

    @contextmanager
    def connected(_: object) -> Iterator[None]:
        yield None

    def start(script: Script, *read: Positions) -> tuple[Deployment, ScriptedServer]:
        looks = list(read or (positions(1200),))
        slot = iter([{"active": True, "active_pid": 7}])
        monkeypatch.setattr(offsets, "refuse_other_source", lambda _: (lock, None))
        monkeypatch.setattr(offsets, "read_positions", lambda *_: looks.pop(0) if len(looks) > 1 else looks[0])
        monkeypatch.setattr(offsets, "rows_moved", lambda *_: 3)
        monkeypatch.setattr(offsets.postgres_client, "connected", connected)
        monkeypatch.setattr(
            offsets.postgres_positions, "positions", lambda *_: next(slot, {"active": False, "active_pid": None})
        )
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
    said: list[str] = []
    done = offsets.reset(deployment, None, said.append)
    assert writes(server) == [STOP, PATCHED, RESUME]
    assert (done.before, done.after, done.rows, done.resumed) == (1200, 1000, 3, True)
    assert json.loads(done.backup.read_text())["offsets"][0]["offset"] == seed(1200)
    backed_up = next(number for number, words in enumerate(said) if str(done.backup) in words)
    moved = said.index("set the position of connector library-outbox")
    assert backed_up < moved, "what is not backed up is not touched"
    assert any("3 outbox rows in 200 bytes of WAL" in words for words in said[:moved])


def test_what_somebody_stopped_stays_stopped(play: Play) -> None:
    script = [*looks(STOPPED), *looks(STOPPED), NO_BODY, STOPPED, *looks(STOPPED), OK, SET]
    deployment, server = play(script)
    assert offsets.reset(deployment, None, lambda _: None).resumed is False
    assert writes(server) == [STOP, PATCHED]


def test_offsets_of_another_prefix_go_first(play: Play) -> None:
    """They would pass for the connector's position."""
    both = at((OWN, 1200), ({"server": "old"}, 9))
    script = [*looks(STOPPED), *looks(STOPPED), NO_BODY, STOPPED, *looks(STOPPED, both), OK, OK, SET]
    deployment, server = play(script)
    offsets.reset(deployment, None, lambda _: None)
    assert writes(server) == [STOP, DELETE, PATCHED]


@pytest.mark.parametrize(("state", "last"), [(RUNNING, [STOP, RESUME]), (STOPPED, [STOP])])
def test_what_moved_until_the_stop_is_refused_and_nothing_changed(
    play: Play, state: tuple[int, object], last: list[object]
) -> None:
    """The slot was moved beyond the connector between the first look and the second."""
    script = [*looks(state), *looks(state), NO_BODY, STOPPED, *looks(STOPPED), NO_BODY, RUNNING]
    deployment, server = play(script, positions(1200), positions(1200, confirmed=1300))
    with pytest.raises(RefusedError, match="is ahead of the connector"):
        offsets.reset(deployment, None, lambda _: None)
    assert writes(server) == last


def fails(*_: object) -> None:
    raise ConfigurationError("cannot write", "")


@pytest.mark.parametrize(("state", "last"), [(RUNNING, [STOP, RESUME]), (STOPPED, [STOP])])
@pytest.mark.parametrize("what", ["backup", "rows_moved"])
def test_what_fails_after_the_stop_leaves_the_connector_as_it_was(
    play: Play, monkeypatch: pytest.MonkeyPatch, what: str, state: tuple[int, object], last: list[object]
) -> None:
    script = [*looks(state), *looks(state), NO_BODY, STOPPED, *looks(STOPPED), NO_BODY]
    deployment, server = play(script)
    monkeypatch.setattr(*((offsets.offset_backup, "write") if what == "backup" else (offsets, "rows_moved")), fails)
    with pytest.raises(ConfigurationError, match="cannot write"):
        offsets.reset(deployment, None, lambda _: None)
    assert writes(server) == last


def test_a_connector_that_cannot_be_resumed_is_told_and_the_cause_stays(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [*looks(RUNNING), *looks(RUNNING), NO_BODY, STOPPED, *looks(STOPPED), (500, {"message": "no leader"})]
    deployment, _ = play(script)
    monkeypatch.setattr(offsets.offset_backup, "write", fails)
    said: list[str] = []
    with pytest.raises(ConfigurationError, match="cannot write"):
        offsets.reset(deployment, None, said.append)
    assert "stays STOPPED, start it with `outbox resume`" in said[-1]


def test_what_is_refused_at_once_stops_nothing(play: Play, tmp_path: Path) -> None:
    deployment, server = play([*looks(RUNNING), *looks(RUNNING)], positions(900))
    with pytest.raises(RefusedError, match="is ahead of the connector"):
        offsets.reset(deployment, None, lambda _: None)
    with pytest.raises(RefusedError):
        offsets.preview(deployment, None)
    assert writes(server) == []
    assert list(tmp_path.glob("*.offsets.*")) == []


def test_a_position_that_is_not_kept_is_no_success(play: Play) -> None:
    script = [*looks(STOPPED), *looks(STOPPED), NO_BODY, STOPPED, *looks(STOPPED), OK, STANDS]
    deployment, _ = play(script)
    with pytest.raises(RefusedError, match="does not keep the position that it was given"):
        offsets.reset(deployment, None, lambda _: None)


def test_skip_is_handed_on(play: Play) -> None:
    deployment, _ = play(looks(RUNNING), positions(900))
    assert offsets.preview(deployment, None, skip=True).loses
