"""restart, pause, resume, stop: requests to Connect by state, and the waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.connect.samples import listing
from tests.unit.operations.samples import TRACE
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError, RejectedError, WaitTimeoutError
from outbox_kit.operations import lifecycle
from outbox_kit.pipeline import ConnectorSettings, HttpService
from outbox_kit.progress import silent

Deployed = Callable[..., Deployment]
Play = Callable[[Script], tuple[Deployment, ScriptedServer]]
PATH = "/connectors/library-outbox"
OFFSETS: tuple[int, object] = (200, {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": 9}}]})
DONE: tuple[int, object] = (202, None)


def status(connector: str, *tasks: str) -> tuple[int, object]:
    """Return Connect's response to GET status."""
    parts: list[dict[str, Any]] = [
        {"id": number, "state": task, "worker_id": "w", "trace": TRACE if task == "FAILED" else ""}
        for number, task in enumerate(tasks)
    ]
    return 200, {"name": "c", "connector": {"state": connector, "worker_id": "w"}, "tasks": parts}


RUNNING, FAILED = status("RUNNING", "RUNNING"), status("RUNNING", "FAILED")
STOPPED, PAUSED = status("STOPPED"), status("PAUSED", "PAUSED")


@pytest.fixture
def play(deployed: Deployed, serve: Callable[[Script], ScriptedServer], monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a deployment whose Connect has scripted responses, without the guard."""
    monkeypatch.setattr(connect_lifecycle, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(lifecycle, "refuse_unsafe_start", lambda *_: None)
    monkeypatch.setattr(lifecycle, "wait_until_reading", lambda _: None)

    def start(script: Script) -> tuple[Deployment, ScriptedServer]:
        server = serve(script)
        return deployed(connect=HttpService(url=server.url)), server

    return start


def writes(server: ScriptedServer) -> list[str]:
    return [f"{request.method} {request.path}" for request in server.seen if request.method != "GET"]


def actual(state: tuple[int, object]) -> list[tuple[int, object]]:
    """Return the responses to read_actual(): connectors with config and status, offsets."""
    return [listing({"a": "b"}, state[1]), OFFSETS]


@pytest.mark.parametrize(
    ("only_failed", "state", "path"),
    [
        (False, RUNNING, "/restart?includeTasks=true"),
        (False, FAILED, "/restart?includeTasks=true"),
        (True, FAILED, "/restart?includeTasks=true&onlyFailed=true"),
    ],
)
def test_restart(play: Play, only_failed: bool, state: tuple[int, object], path: str) -> None:
    deployment, server = play([*actual(state), DONE, RUNNING])
    assert lifecycle.restart(deployment, silent, only_failed=only_failed).connector == "RUNNING"
    assert writes(server) == [f"POST {PATH}{path}"]


def test_restart_of_failed_tasks_changes_nothing_that_runs(play: Play) -> None:
    deployment, server = play([*actual(RUNNING), RUNNING])
    messages: list[str] = []
    lifecycle.restart(deployment, messages.append, only_failed=True)
    assert writes(server) == []
    assert messages == ["nothing FAILED: connector RUNNING, tasks: RUNNING"]


def test_a_restart_that_fails_again_shows_the_root_cause(play: Play) -> None:
    deployment, _ = play([*actual(FAILED), DONE, FAILED])
    with pytest.raises(RejectedError, match=r"FAILED: y\.PSQLException: ERROR: why"):
        lifecycle.restart(deployment, silent)


@pytest.mark.parametrize("state", [STOPPED, PAUSED])
def test_a_paused_or_stopped_connector_is_not_restarted(play: Play, state: tuple[int, object]) -> None:
    deployment, server = play(actual(state))
    with pytest.raises(RejectedError, match="is paused or stopped") as refused:
        lifecycle.restart(deployment, silent)
    assert "`outbox resume`" in refused.value.hint
    assert writes(server) == []


@pytest.mark.parametrize("state", [STOPPED, PAUSED])
def test_resume(play: Play, state: tuple[int, object]) -> None:
    deployment, server = play([*actual(state), DONE, RUNNING])
    assert lifecycle.resume(deployment, silent).tasks == ("RUNNING",)
    assert writes(server) == [f"PUT {PATH}/resume"]


def test_resume_of_a_running_connector_does_nothing(play: Play) -> None:
    deployment, server = play([*actual(RUNNING), RUNNING])
    lifecycle.resume(deployment, silent)
    assert writes(server) == []


def test_resume_of_a_failed_connector_is_rejected(play: Play) -> None:
    deployment, server = play(actual(FAILED))
    with pytest.raises(RejectedError, match=r"FAILED: y\.PSQLException: ERROR: why"):
        lifecycle.resume(deployment, silent)
    assert writes(server) == []


@pytest.mark.parametrize(("command", "state"), [(lifecycle.resume, STOPPED), (lifecycle.restart, FAILED)])
def test_rejects_a_start_that_could_lose_rows(
    play: Play, monkeypatch: pytest.MonkeyPatch, command: Callable[..., object], state: tuple[int, object]
) -> None:
    deployment, server = play(actual(state))

    def refuse(*_: object) -> None:
        raise RefusedError("the slot is gone", "recover")

    monkeypatch.setattr(lifecycle, "refuse_unsafe_start", refuse)
    with pytest.raises(RefusedError, match="the slot is gone"):
        command(deployment, silent)
    assert writes(server) == []


def test_pause_waits_for_every_task(play: Play) -> None:
    deployment, server = play([*actual(RUNNING), DONE, status("PAUSED", "RUNNING"), PAUSED])
    assert lifecycle.pause(deployment, silent).tasks == ("PAUSED",)
    assert writes(server) == [f"PUT {PATH}/pause"]


def test_pause_of_a_failed_task_shows_the_root_cause(play: Play) -> None:
    deployment, _ = play([*actual(FAILED), DONE, status("PAUSED", "FAILED")])
    with pytest.raises(RejectedError, match=r"FAILED: y\.PSQLException: ERROR: why"):
        lifecycle.pause(deployment, silent)


def test_pause_times_out(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PAUSE_TIMEOUT_S", 0.3)
    deployment, _ = play([*actual(RUNNING), DONE, RUNNING])
    with pytest.raises(WaitTimeoutError, match="last seen: connector RUNNING, tasks: RUNNING"):
        lifecycle.pause(deployment, silent)


@pytest.mark.parametrize("state", [RUNNING, FAILED, STOPPED])
def test_stop(play: Play, state: tuple[int, object]) -> None:
    deployment, server = play([*actual(state), (204, None), STOPPED])
    assert lifecycle.stop(deployment, silent).connector == "STOPPED"
    assert writes(server) == [f"PUT {PATH}/stop"]


@pytest.mark.parametrize(
    ("declared", "state", "note"),
    [
        ("running", "stopped", True),
        ("running", "running", False),
        ("paused", "paused", False),
        ("paused", "running", True),
    ],
)
def test_note_on_the_declared_state(deployed: Deployed, declared: str, state: str, note: bool) -> None:
    deployment = deployed(connector=ConnectorSettings.model_validate({"state": declared}))
    text = lifecycle.declared_state_note(deployment, state)
    assert bool(text) is note
    assert not note or (f"`outbox apply` makes it {declared}" in text and f"connector.state: {state} to keep" in text)
