"""Requests that restart, pause, resume and stop send to Connect in each state, and their waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.connect_samples import writes
from tests.unit.fake_connect import FakeConnect, Fault, error
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import NAME
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import ScriptedServer

from outbox_events.errors import RefusedError, RejectedError, WaitTimeoutError
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.operations import lifecycle
from outbox_kit.pipeline import ConnectorSettings
from outbox_kit.results import silent

PATH = f"/connectors/{NAME}"
ROOT_CAUSE = r"FAILED: org\.postgresql\.util\.PSQLException: ERROR: publication does not exist"


@pytest.mark.parametrize(
    ("only_failed", "failed", "query"),
    [
        (False, False, "includeTasks=true"),
        (False, True, "includeTasks=true"),
        (True, True, "includeTasks=true&onlyFailed=true"),
    ],
)
def test_restart(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer, only_failed: bool, failed: bool, query: str
) -> None:
    connect.failed = {NAME} if failed else set()
    status = lifecycle.restart(deployment, silent, only_failed=only_failed)
    assert (status.connector_state, status.task_states) == ("RUNNING", ("RUNNING",))
    assert writes(server) == [f"POST {PATH}/restart?{query}"]


def test_restart_of_failed_tasks_does_not_restart_running_tasks(deployment: Deployment, server: ScriptedServer) -> None:
    messages: list[str] = []
    lifecycle.restart(deployment, messages.append, only_failed=True)
    assert writes(server) == []
    assert messages == ["neither the connector nor a task is FAILED: connector RUNNING, tasks: RUNNING"]


def test_a_restart_that_fails_again_shows_the_root_cause(deployment: Deployment, connect: FakeConnect) -> None:
    connect.fails = lambda _: True
    with pytest.raises(RejectedError, match=ROOT_CAUSE):
        lifecycle.restart(deployment, silent)


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_a_paused_or_stopped_connector_is_not_restarted(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer, state: str
) -> None:
    connect.states[NAME] = state
    with pytest.raises(RejectedError, match="is paused or stopped") as rejected:
        lifecycle.restart(deployment, silent)
    assert "`outbox resume`" in rejected.value.hint
    assert writes(server) == []


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_resume(deployment: Deployment, connect: FakeConnect, server: ScriptedServer, state: str) -> None:
    connect.states[NAME] = state
    assert lifecycle.resume(deployment, silent).task_states == ("RUNNING",)
    assert writes(server) == [f"PUT {PATH}/resume"]


def test_resume_of_a_running_connector_does_nothing(deployment: Deployment, server: ScriptedServer) -> None:
    lifecycle.resume(deployment, silent)
    assert writes(server) == []


def test_resume_of_a_failed_connector_is_rejected(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer
) -> None:
    connect.failed = {NAME}
    with pytest.raises(RejectedError, match=ROOT_CAUSE):
        lifecycle.resume(deployment, silent)
    assert writes(server) == []


@pytest.mark.parametrize(
    ("command", "state", "failed"), [(lifecycle.resume, "STOPPED", False), (lifecycle.restart, "RUNNING", True)]
)
def test_rejects_a_start_that_could_lose_rows(
    deployment: Deployment,
    connect: FakeConnect,
    server: ScriptedServer,
    database: FakePostgres,
    command: Callable[..., object],
    state: str,
    failed: bool,
) -> None:
    connect.states[NAME], connect.failed = state, {NAME} if failed else set()
    database.actual = replace(DEPLOYED, slot=None)
    with pytest.raises(RefusedError, match=r"slot 'library_outbox', created at .*, does not exist"):
        command(deployment, silent)
    assert writes(server) == []


def test_pause_waits_for_every_task(deployment: Deployment, connect: FakeConnect, server: ScriptedServer) -> None:
    connect.polls = [("PAUSED", "RUNNING")]
    assert lifecycle.pause(deployment, silent).task_states == ("PAUSED",)
    assert writes(server) == [f"PUT {PATH}/pause"]


def test_pause_of_a_failed_task_shows_the_root_cause(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer
) -> None:
    connect.failed = {NAME}
    with pytest.raises(RejectedError, match=ROOT_CAUSE):
        lifecycle.pause(deployment, silent)
    assert writes(server) == []


def test_pause_times_out(deployment: Deployment, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PAUSE_TIMEOUT_S", 0.3)
    connect.polls = [("RUNNING", "RUNNING")] * 100
    with pytest.raises(WaitTimeoutError, match="last seen: connector RUNNING, tasks: RUNNING"):
        lifecycle.pause(deployment, silent)


@pytest.mark.parametrize(("state", "failed"), [("RUNNING", False), ("RUNNING", True), ("STOPPED", False)])
def test_stop(deployment: Deployment, connect: FakeConnect, server: ScriptedServer, state: str, failed: bool) -> None:
    connect.states[NAME], connect.failed = state, {NAME} if failed else set()
    assert lifecycle.stop(deployment, silent).connector_state == "STOPPED"
    assert writes(server) == [f"PUT {PATH}/stop"]


COMMANDS = [lifecycle.restart, lifecycle.resume, lifecycle.pause, lifecycle.stop]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_do_not_run_while_another_command_changes_the_pipeline(
    deployment: Deployment, server: ScriptedServer, database: FakePostgres, command: Callable[..., object]
) -> None:
    database.is_locked = True
    with pytest.raises(RefusedError, match=r"'library' .* pid 7, 'outbox-kit apply"):
        command(deployment, silent)
    assert writes(server) == []


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ([], "connector library-outbox is STOPPED"),
        ([Fault(error(500, "no leader"))], "the state of connector library-outbox is unknown"),
    ],
)
def test_an_interrupted_command_reports_the_state_of_the_connector(
    deployment: Deployment, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch, fault: list[Fault | None], state: str
) -> None:
    def interrupt(*_: object) -> None:
        connect.states[NAME], connect.faults = "STOPPED", {"GET status": fault}
        raise KeyboardInterrupt

    monkeypatch.setattr(connect_lifecycle, "stop", interrupt)
    messages: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        lifecycle.stop(deployment, messages.append)
    assert messages[-1].startswith(state)
    assert messages[-1].endswith("to continue, run `outbox stop`")


@pytest.mark.parametrize(("command", "state"), [(lifecycle.stop, "STOPPED"), (lifecycle.pause, "PAUSED")])
def test_a_connector_can_be_stopped_while_the_database_is_down(
    deployment: Deployment, connect: FakeConnect, database: FakePostgres, command: Callable[..., object], state: str
) -> None:
    database.down = True
    messages: list[str] = []
    command(deployment, messages.append)
    assert connect.states == {NAME: state}
    assert messages[0].startswith("the lock of the pipeline was not acquired: cannot connect to PostgreSQL")


@pytest.mark.parametrize(
    ("declared", "state", "note"),
    [
        ("running", "stopped", True),
        ("running", "running", False),
        ("paused", "paused", False),
        ("paused", "running", True),
    ],
)
def test_note_on_the_declared_state(deployed: Callable[..., Deployment], declared: str, state: str, note: bool) -> None:
    deployment = deployed(connector=ConnectorSettings.model_validate({"state": declared}))
    text = lifecycle.declared_state_note(deployment, state)
    assert bool(text) is note
    assert not note or (f"makes the connector {declared}" in text and f"connector.state: {state} to keep" in text)
