"""Rollback after a new config FAILED, and what counts as settled."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.unit.connect.samples import LOOK_S, TRACE, ticking, written
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.config_diff import FINGERPRINT_KEY
from outbox_kit.connect.lifecycle import FailedError, settle, wait_for_state
from outbox_kit.connect.rollback import roll_back
from outbox_kit.connect.state import EPOCH_KEY, State
from outbox_kit.errors import RejectedError, WaitTimeoutError
from outbox_kit.pipeline import HttpService
from outbox_kit.progress import silent

Serve = Callable[[Script], ScriptedServer]
Answer = tuple[int, object]
GOOD, NEW = written({"a": "1", EPOCH_KEY: "2"}), written({"a": "2", EPOCH_KEY: "2"})
FAILURE = FailedError("connector c FAILED: x.Y: no", "see docs/operations.md")
DONE: Answer = (202, None)
STOP, RESUME = Request("PUT", "/connectors/c/stop"), Request("PUT", "/connectors/c/resume")
PUT = Request("PUT", "/connectors/c/config", GOOD)


def status(connector: str, *tasks: str) -> Answer:
    trace = TRACE if "FAILED" in tasks else ""
    return 200, {"connector": {"state": connector}, "tasks": [{"state": task, "trace": trace} for task in tasks]}


STOPPED, RUNS, FAILED = status("STOPPED"), status("RUNNING", "RUNNING"), status("RUNNING", "FAILED")


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_lifecycle, "POLL_INTERVAL_S", LOOK_S)
    monkeypatch.setattr(connect_lifecycle, "monotonic", ticking())


def ended(
    server: ScriptedServer, last_working: dict[str, str] | None, said: list[str] | None = None, state: State = "running"
) -> RejectedError:
    client = ConnectClient(HttpService(url=server.url))
    progress = said.append if said is not None else silent
    return roll_back(
        client,
        "c",
        FAILURE,
        config=NEW,
        last_working=last_working,
        progress=progress,
        state=state,
        stability_seconds=0.05,
    )


def writes(server: ScriptedServer) -> list[Request]:
    return [request for request in server.seen if request.method != "GET"]


def test_restores_the_last_working_config_while_stopped(serve: Serve) -> None:
    server = serve([DONE, FAILED, STOPPED, (200, {}), DONE, STOPPED, RUNS])
    messages: list[str] = []
    error = ended(server, GOOD, messages)
    mark = GOOD[FINGERPRINT_KEY][:12]
    assert (
        error.message
        == f"connector c FAILED: x.Y: no; rolled back to the last working config ({mark}), connector RUNNING"
    )
    assert "outbox apply" in error.hint
    assert writes(server) == [STOP, PUT, RESUME]
    assert messages == [f"connector c FAILED: x.Y: no; roll back to the last working config ({mark})"]


def test_reports_both_causes_when_the_last_working_config_fails(serve: Serve) -> None:
    server = serve([DONE, STOPPED, (200, {}), DONE, FAILED])
    error = ended(server, GOOD)
    assert "connector c FAILED: x.Y: no; rolled back to the last working config (" in error.message
    assert "which FAILED too: connector c FAILED: org.postgresql.util.PSQLException" in error.message
    assert "not in the config" in error.hint


@pytest.mark.parametrize(
    ("last_working", "why"),
    [
        (None, "no earlier config has run"),
        (written({"a": "1", EPOCH_KEY: "1"}), "the last working config has an earlier source epoch"),
        *(
            (written({"a": "1", EPOCH_KEY: "2", key: "x"}), f"the last working config has another {key}")
            for key in ("topic.prefix", "slot.name", "database.hostname", "database.port", "database.dbname")
        ),
    ],
    ids=["first config", "recovered since", "prefix", "slot", "host", "port", "database"],
)
def test_stops_the_connector_without_a_working_config(
    serve: Serve, last_working: dict[str, str] | None, why: str
) -> None:
    server = serve([DONE, STOPPED])
    assert (
        ended(server, last_working).message == f"connector c FAILED: x.Y: no; {why}, so the connector is left STOPPED"
    )
    assert writes(server) == [STOP]


@pytest.mark.parametrize(
    ("state", "script", "move", "ending"),
    [
        ("paused", [DONE, status("PAUSED")], [Request("PUT", "/connectors/c/pause")], "connector PAUSED"),
        ("stopped", [STOPPED], [], "connector STOPPED"),
    ],
)
def test_rollback_ends_in_the_declared_state(
    serve: Serve, state: State, script: list[Answer], move: list[Request], ending: str
) -> None:
    server = serve([DONE, STOPPED, (200, {}), *script])
    assert ended(server, GOOD, state=state).message.endswith(ending)
    assert writes(server) == [STOP, PUT, *move]


def test_changed_login_keeps_the_offset(serve: Serve) -> None:
    valid = written({"a": "1", EPOCH_KEY: "2", "database.user": "before"})
    assert ended(serve([DONE, STOPPED, (200, {}), DONE, RUNS]), valid).message.endswith("connector RUNNING")


def test_does_not_change_a_connector_that_failed_before(serve: Serve) -> None:
    """The cause is elsewhere: writing the same config again fixes nothing."""
    server = serve([DONE])
    assert ended(server, NEW) is FAILURE
    assert server.seen == []


def test_reports_no_secret_of_a_config(serve: Serve) -> None:
    valid = written({"a": "1", "database.password": "s3cret", EPOCH_KEY: "2"})
    messages: list[str] = []
    error = ended(serve([DONE, STOPPED, (200, {}), DONE, FAILED]), valid, messages)
    assert "s3cret" not in error.message + error.hint + repr(messages)


# --- settled


def settled(server: ScriptedServer, state: State, stability: float = 0.05) -> bool:
    client = ConnectClient(HttpService(url=server.url))
    return settle(client, "c", silent, started=True, state=state, stability_seconds=stability)


PAUSED = status("PAUSED", "PAUSED")


@pytest.mark.parametrize(
    ("state", "script", "proven"),
    [
        ("running", [STOPPED, STOPPED, status("RUNNING"), RUNS], True),
        ("paused", [RUNS, status("PAUSED", "RUNNING"), PAUSED], False),
        # Observed with Kafka 4.3: out of STOPPED it has no task before it is resumed.
        ("paused", [STOPPED, status("PAUSED")], False),
        ("stopped", [RUNS, status("STOPPED", "RUNNING"), STOPPED], False),
    ],
)
def test_waits_for_each_state(serve: Serve, state: State, script: Script, proven: bool) -> None:
    """Only a config that ran is one to go back to."""
    server = serve(script)
    assert settled(server, state) is proven
    assert len(server.seen) >= len(script)


@pytest.mark.parametrize("state", ["running", "paused"])
def test_failure_is_not_a_settled_state(serve: Serve, state: State) -> None:
    with pytest.raises(FailedError, match="publication does not exist"):
        settled(serve([status("RUNNING" if state == "running" else "PAUSED", "FAILED")]), state)


def test_running_is_settled_after_the_window(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_lifecycle, "monotonic", time.monotonic)
    began = time.monotonic()
    assert settled(serve([RUNS]), "running", 0.4)
    assert time.monotonic() - began >= 0.4


def test_interruption_restarts_the_window(serve: Serve) -> None:
    """Eleven polls are RUNNING, but never eight in succession."""
    script = [RUNS] * 5 + [status("RUNNING", "RESTARTING")] + [RUNS] * 6 + [FAILED]
    with pytest.raises(FailedError):
        settled(serve(script), "running", 8 * LOOK_S)


def test_window_is_added_to_the_wait(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window may be longer than the time within which the connector must start."""
    monkeypatch.setattr(connect_lifecycle, "monotonic", time.monotonic)
    running, stopped = (ConnectClient(HttpService(url=serve([answer]).url)) for answer in (RUNS, STOPPED))
    wait_for_state(running, "c", seconds=0.6, stability_seconds=0.8)
    with pytest.raises(WaitTimeoutError, match=r"waited 0\.25 s for connector c"):
        wait_for_state(stopped, "c", seconds=0.05, stability_seconds=0.2)
