"""offsets reset: effect of a change, order of the requests to Connect, and state after a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.unit.fake_connect import FakeConnect, Fault, error
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import NAME, positions
from tests.unit.postgres.samples import DEPLOYED, SLOT
from tests.unit.support import ScriptedServer

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.lag import Positions
from outbox_kit.operations import offsets
from outbox_kit.operations.offsets import OffsetChange, validated_change
from outbox_kit.results import silent

PATH = f"/connectors/{NAME}"
OWN_PARTITION, OTHER_PARTITION = {"server": "library"}, {"server": "old"}
SLOT_AT_1000 = replace(SLOT, confirmed_flush=1000, restart_lsn=900)
PATCH = (f"PATCH {PATH}/offsets", {"offsets": [{"partition": OWN_PARTITION, "offset": seed(1000)}]})
STOP, RESUME, DELETE = (f"PUT {PATH}/stop", None), (f"PUT {PATH}/resume", None), (f"DELETE {PATH}/offsets", None)


def offset_at(lsn: int, partition: dict[str, str] = OWN_PARTITION) -> dict[str, Any]:
    return {"partition": partition, "offset": seed(lsn)}


@pytest.fixture(autouse=True)
def positions_at_1200(connect: FakeConnect, database: FakePostgres) -> None:
    """Set the LSNs of connector (1200), slot (1000) and server (5000), with 3 events in between."""
    connect.offsets[NAME] = [offset_at(1200)]
    database.actual = replace(DEPLOYED, slot=SLOT_AT_1000, wal_position=5000)
    database.events = 3


def writes(server: ScriptedServer) -> list[tuple[str, Any]]:
    return [(f"{request.method} {request.path}", request.body) for request in server.seen if request.method != "GET"]


def test_stop_back_up_reset_resume(deployment: Deployment, server: ScriptedServer) -> None:
    messages: list[str] = []
    done = offsets.reset(deployment, None, messages.append)
    assert writes(server) == [STOP, PATCH, RESUME]
    assert (done.before, done.after, done.rows, done.resumed) == (1200, 1000, 3, True)
    assert json.loads(done.backup.read_text())["offsets"] == [offset_at(1200)]
    backed_up = next(number for number, message in enumerate(messages) if str(done.backup) in message)
    offset_set = messages.index("set the offset of connector library-outbox")
    assert backed_up < offset_set
    assert any("3 outbox rows in 200 bytes of WAL" in message for message in messages[:offset_set])


def test_does_not_run_while_another_command_changes_the_pipeline(
    deployment: Deployment, server: ScriptedServer, database: FakePostgres
) -> None:
    database.is_locked = True
    with pytest.raises(RefusedError, match="changes pipeline 'library'"):
        offsets.reset(deployment, None, silent)
    assert writes(server) == []


def test_is_refused_in_a_protected_environment(deployment: Deployment, server: ScriptedServer) -> None:
    protected = replace(deployment, environment=deployment.environment.model_copy(update={"protected": True}))
    for run in (lambda: offsets.preview(protected, None), lambda: offsets.reset(protected, None, silent)):
        with pytest.raises(RefusedError, match="environment fixed is protected"):
            run()
    assert writes(server) == []


def test_a_stopped_connector_stays_stopped(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer
) -> None:
    connect.states[NAME] = "STOPPED"
    assert offsets.reset(deployment, None, silent).resumed is False
    assert writes(server) == [STOP, PATCH]


def test_offsets_of_another_prefix_are_deleted_first(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer
) -> None:
    connect.offsets[NAME] = [offset_at(1200), offset_at(9, OTHER_PARTITION)]
    offsets.reset(deployment, None, silent)
    assert writes(server) == [STOP, DELETE, PATCH, RESUME]
    assert connect.offsets[NAME] == [offset_at(1000)]


RESTORED = pytest.mark.parametrize(("state", "requests"), [("RUNNING", [STOP, RESUME]), ("STOPPED", [STOP])])


@RESTORED
def test_rejects_a_slot_that_advances_before_the_stop(
    deployment: Deployment,
    connect: FakeConnect,
    server: ScriptedServer,
    database: FakePostgres,
    state: str,
    requests: list[object],
) -> None:
    connect.states[NAME] = state
    database.polls = [SLOT_AT_1000, SLOT_AT_1000]  # read before the stop
    database.actual = replace(database.actual, slot=replace(SLOT_AT_1000, confirmed_flush=1300))
    with pytest.raises(RefusedError, match="is ahead of the connector"):
        offsets.reset(deployment, None, silent)
    assert writes(server) == requests


def fails(*_: object) -> None:
    raise ConfigurationError("cannot write", "")


@RESTORED
@pytest.mark.parametrize("failing", ["backup", "count"])
def test_a_failure_after_the_stop_restores_the_state(
    deployment: Deployment,
    connect: FakeConnect,
    server: ScriptedServer,
    database: FakePostgres,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    state: str,
    requests: list[object],
) -> None:
    connect.states[NAME] = state
    if failing == "backup":
        monkeypatch.setattr(offsets.offset_backup, "write", fails)
    else:
        database.events = psycopg.OperationalError("cannot write")
    with pytest.raises(OutboxError, match="cannot write"):
        offsets.reset(deployment, None, silent)
    assert writes(server) == requests


def test_an_interruption_while_the_offset_is_set_names_both_commands(
    deployment: Deployment, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(offsets, "_write_offset", interrupt)
    messages: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        offsets.reset(deployment, None, messages.append)
    assert writes(server) == [STOP]
    assert "run `outbox resume` after `outbox offsets reset`" in messages[-2]


def test_a_failed_resume_is_reported_and_the_first_error_raised(
    deployment: Deployment, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect.faults = {"PUT resume": [Fault(error(500, "no leader"))]}
    monkeypatch.setattr(offsets.offset_backup, "write", fails)
    messages: list[str] = []
    with pytest.raises(ConfigurationError, match="cannot write"):
        offsets.reset(deployment, None, messages.append)
    assert "run `outbox resume`" in messages[-1]


def test_rejected_preview_does_not_stop_the_connector(
    deployment: Deployment, connect: FakeConnect, server: ScriptedServer, tmp_path: Path
) -> None:
    connect.offsets[NAME] = [offset_at(900)]
    with pytest.raises(RefusedError, match="is ahead of the connector"):
        offsets.reset(deployment, None, silent)
    with pytest.raises(RefusedError):
        offsets.preview(deployment, None)
    assert writes(server) == []
    assert list(tmp_path.glob("*.offsets.*")) == []


def test_reports_an_offset_that_connect_does_not_return(deployment: Deployment, connect: FakeConnect) -> None:
    connect.faults = {"PATCH offsets": [Fault((200, {}))]}
    with pytest.raises(RefusedError, match="does not return the offset"):
        offsets.reset(deployment, None, silent)


def test_passes_skip(deployment: Deployment, connect: FakeConnect) -> None:
    connect.offsets[NAME] = [offset_at(900)]
    assert offsets.preview(deployment, None, skip=True).skips_rows


@pytest.mark.parametrize(
    ("before", "after", "skips_rows", "countable", "fragment"),
    [
        (1000, 1000, False, True, "no row is sent again, and no row is lost"),
        (1200, 1000, False, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are sent again"),
        (1000, 1200, True, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are SKIPPED"),
        # The slot was recreated beyond the connector's offset, and the WAL in between was removed.
        (900, 1000, True, False, "3 outbox rows in 100 bytes of WAL between 0/384 and 0/3E8 are SKIPPED"),
        (None, 1000, False, True, "no row is sent again, and no row is lost"),
        (None, 1200, True, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are SKIPPED"),
    ],
)
def test_effect_of_a_change(before: int | None, after: int, skips_rows: bool, countable: bool, fragment: str) -> None:
    change = OffsetChange(before, after, confirmed=1000)
    assert (change.skips_rows, change.rows_countable) == (skips_rows, countable)
    assert change.describe(3).startswith(fragment)


def test_effect_of_a_change_whose_rows_are_not_counted() -> None:
    assert OffsetChange(1200, 1000, 1000).describe(None).startswith("an unknown number of outbox rows in 200 bytes")


@pytest.mark.parametrize(
    ("actual", "target", "message"),
    [
        (positions(), 999, "is below the slot's confirmed LSN 0/3E8"),
        (positions(), 5001, "is beyond the server's LSN 0/1388"),
        (positions(), 1001, "is ahead of the connector"),
        (positions(connector=900), 1000, "is ahead of the connector"),
        (positions(confirmed=None), 1000, "the slot does not exist"),
    ],
)
def test_rejects_an_offset_that_would_lose_rows(actual: Positions, target: int, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        validated_change(actual, target, skip=False)
    assert refused.value.hint


@pytest.mark.parametrize("target", [999, 5001])
def test_rejects_offsets_outside_the_slot_also_with_skip(target: int) -> None:
    with pytest.raises(RefusedError):
        validated_change(positions(), target, skip=True)


@pytest.mark.parametrize(("target", "skip"), [(1000, False), (1200, False), (1201, True), (5000, True)])
def test_accepts_offsets_inside_the_slot(target: int, skip: bool) -> None:
    assert validated_change(positions(connector=1200), target, skip=skip) == OffsetChange(1200, target, 1000)
