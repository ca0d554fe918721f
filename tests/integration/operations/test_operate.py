"""status, restart, pause, resume, stop, offsets and dead-letter on the embedded stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.integration.support import (
    CommandResult,
    Deploy,
    Run,
    headers,
    in_process,
    records,
    wait_confirmed,
    wait_record,
)
from tests.integration.transforms.test_records import book, send, send_within

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import count_undelivered
from outbox_kit.stack import Stack

NAME, TOPIC, TABLE = "operate", "operate.book", "public.operate_event"
CONFIRMED = ("--confirm", f"{NAME}@local")


@pytest.fixture(scope="module")
def deployment(stack: Stack, deploy_once: Deploy) -> Deployment:
    """Deploy a pipeline for this module."""
    del stack  # must be running
    # Small batches, so that a transaction consists of many.
    return deploy_once(
        NAME, connector={"name": NAME, "template": "outbox-postgres", "overrides": {"max.batch.size": "8"}}
    )


@pytest.fixture
def run(deployment: Deployment) -> Run:
    """Return a function that runs a command in this process and checks its exit code."""
    return in_process(deployment)


@pytest.fixture
def write(source_dsn: str) -> Callable[..., str]:
    """Return a function that writes an event of a book and returns the event id."""

    def event(key: str | None = None, **payload: object) -> str:
        key = key or str(uuid4())
        return send(source_dsn, "book", key, book(key, **payload), table=TABLE)

    return event


def document(done: CommandResult) -> dict[str, Any]:
    actual = json.loads(done.stdout)
    assert isinstance(actual, dict)
    return actual


def server_position(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])


def occurrences(deployment: Deployment, events: list[str]) -> list[int]:
    """Return the number of records of each event on the topic."""
    actual = [headers(message).get("event_id") for message in records(deployment, TOPIC, 4)]
    return [actual.count(event) for event in events]


def test_status_of_a_running_pipeline(run: Run) -> None:
    visible = run("status")
    assert "RUNNING on " in visible.stdout
    assert "active, WAL reserved" in visible.stdout
    actual = document(run("status", "--output", "json"))
    assert actual["running"] is True
    assert actual["connector"]["tasks"][0]["worker"]
    assert actual["slot"]["retained_bytes"] >= actual["slot"]["lag_bytes"] >= 0
    assert actual["dead_letters_unacknowledged"] == 0
    assert actual["source_epoch"] == {"lock": 1, "connector": 1}
    assert actual["problems"] == []


def test_stop_keeps_rows_and_can_be_repeated(run: Run, deployment: Deployment, write: Callable[..., str]) -> None:
    stopped = run("stop")
    assert "connector STOPPED" in stopped.stderr
    assert "makes the connector running; set connector.state: stopped to keep" in stopped.stderr
    assert document(run("stop", "--output", "json")) == {"connector": "STOPPED", "tasks": []}
    event = write()
    actual = document(run("status", "--output", "json", code=1))
    assert (actual["connector"]["state"], actual["slot"]["active"]) == ("STOPPED", False)
    assert actual["slot"]["retained_bytes"] > 0
    assert actual["problems"] == [
        "connector operate is STOPPED, tasks: none",
        "slot operate_s is not active",
    ]
    assert "is paused or stopped: connector STOPPED, tasks: no task yet" in run("restart", code=1).stderr
    assert "connector RUNNING, tasks: RUNNING" in run("resume").stderr
    wait_record(deployment, TOPIC, 4, event)
    assert "is already RUNNING" in run("resume").stderr


def test_pause_keeps_the_slot(run: Run, deployment: Deployment, write: Callable[..., str]) -> None:
    assert document(run("pause", "--output", "json")) == {"connector": "PAUSED", "tasks": ["PAUSED"]}
    assert document(run("pause", "--output", "json"))["connector"] == "PAUSED"
    event = write()
    assert document(run("status", "--output", "json", code=1))["slot"]["active"] is True
    run("resume")
    wait_record(deployment, TOPIC, 4, event)


def test_shows_the_cause_of_a_failed_task_and_restarts_it(
    run: Run, deployment: Deployment, source_dsn: str, write: Callable[..., str]
) -> None:
    assert "neither the connector nor a task is FAILED" in run("restart", "--failed").stderr
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter table operate_event rename column event_type to other_type")
        connection.execute(
            "insert into operate_event (aggregate_type, aggregate_id, other_type) values ('book', 'x', 'y')"
        )

        def poll() -> Observation[bool]:
            status = deployment.connect.status(NAME)
            return Observation(True if connect_lifecycle.has_failed(status) else None, str(status))

        wait_for("the task to fail", poll, seconds=60)
        actual = document(run("status", "--output", "json", code=1))
        assert actual["connector"]["tasks"][0]["state"] == "FAILED"
        assert "event_type" in actual["connector"]["cause"]
        assert "\n" not in actual["connector"]["cause"]
        refused = run("resume", code=1)
        assert "FAILED: " in refused.stderr
        # In the WAL, the row still has the columns from before the rename. A reset below skips the row on purpose.
        connection.execute("alter table operate_event rename column other_type to event_type")
    assert "connector operate FAILED: " in run("restart", "--failed", code=1).stderr
    exported = export_with_offset(deployment, server_position(source_dsn), run)
    skipped = run("offsets", "reset", "--from", str(exported), "--skip-rows", *CONFIRMED)
    assert "1 outbox rows in " in skipped.stderr
    assert "SKIPPED" in skipped.stderr
    wait_record(deployment, TOPIC, 4, write())
    run("restart")
    wait_record(deployment, TOPIC, 4, write())


def export_with_offset(deployment: Deployment, position: int, run: Run) -> Path:
    """Write an export file with a different offset."""
    path = deployment.lock_file.with_name(f"export-{uuid4()}.json")
    run("offsets", "export", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    content = json.loads(path.read_text())
    content["offsets"][0]["offset"] = seed(position)
    path.write_text(json.dumps(content))
    return path


def test_restart_in_the_middle_of_a_transaction_loses_no_row(run: Run, deployment: Deployment, source_dsn: str) -> None:
    """The rows of a COPY have one LSN, so an offset in the middle of a transaction does not identify the last row."""
    count = 1500
    keys = [f"bulk-{number}" for number in range(2 * count)]
    columns = "operate_event (aggregate_type, aggregate_id, event_type)"
    values = ", ".join(f"('book', '{key}', 'sent')" for key in keys[:count])
    with psycopg.connect(source_dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"insert into {columns} values {values}")  # type: ignore[call-overload]
        with cursor.copy(f"copy {columns} from stdin") as copy:  # type: ignore[call-overload]
            for key in keys[count:]:
                copy.write_row(("book", key, "sent"))

    def sent() -> list[str]:
        found = ((message.key() or b"").decode() for message in records(deployment, TOPIC, 4))
        return [key for key in found if key.startswith("bulk-")]

    wait_for("the first rows", lambda: Observation(True if sent() else None, "no row"), seconds=60)
    run("stop")
    assert 0 < len(sent()) < len(keys), "the connector was not stopped in the middle of the transaction"
    run("resume")
    wait_confirmed(source_dsn, f"{NAME}_s")
    assert sorted(sent()) == sorted(keys)


def test_shows_offsets_in_both_notations(run: Run) -> None:
    visible = run("offsets", "show")
    assert "slot, confirmed_flush_lsn  0/" in visible.stdout
    assert "are not yet read by the connector" in visible.stderr
    actual = document(run("offsets", "show", "--output", "json"))
    assert actual["offsets"][0]["partition"] == {"server": NAME}
    high, low = actual["connector"]["text"].split("/")
    assert (int(high, 16) << 32) + int(low, 16) == actual["connector"]["number"]
    assert len(actual["meaning"]) == 3


def test_reset_loses_no_row(run: Run, deployment: Deployment, source_dsn: str, write: Callable[..., str]) -> None:
    """Write rows before, during and after the reset. Each is delivered at least once; processed rows are sent again."""
    before = [write() for _ in range(5)]
    for event in before:
        wait_record(deployment, TOPIC, 4, event)
    wait_confirmed(source_dsn, deployment.pipeline.source.slot)  # unconfirmed rows would be sent again, too
    run("stop")
    during = [write() for _ in range(3)]
    # Simulates processed rows: the connector is ahead of its slot.
    deployment.connect.patch_offsets(NAME, {"server": NAME}, seed(server_position(source_dsn)))
    done = run("offsets", "reset", *CONFIRMED, "--output", "json")
    result = document(done)
    assert result["rows"] == 3
    assert result["resumed"] is False
    assert "3 outbox rows in " in done.stderr
    assert "are sent again" in done.stderr
    backup = json.loads(Path(result["backup"]).read_text())
    assert backup["offsets"][0]["offset"]["lsn"] == result["before"]["number"]
    assert backup["slot"]["confirmed_flush"] == result["after"]["number"]
    assert Path(result["backup"]).stat().st_mode & 0o777 == 0o600
    run("resume")
    after = [write() for _ in range(3)]
    for event in [*during, *after]:
        wait_record(deployment, TOPIC, 4, event)
    assert min(occurrences(deployment, [*before, *during, *after])) >= 1
    # Restore the offset from before the reset, which is now behind the slot.
    assert (
        "is below the slot's confirmed LSN"
        in run("offsets", "reset", "--from", export_of(deployment, result, run), *CONFIRMED, code=1).stderr
    )


def export_of(deployment: Deployment, result: dict[str, Any], run: Run) -> str:
    """Return the export of the offset after the reset, which the connector has passed in the meantime."""
    return str(export_with_offset(deployment, result["after"]["number"] - 8, run))


def test_resumes_a_running_connector_after_a_reset(run: Run, deployment: Deployment, write: Callable[..., str]) -> None:
    events = [write() for _ in range(5)]
    refused = run("offsets", "reset", code=1)
    assert "--confirm PIPELINE@ENVIRONMENT is required" in refused.stderr
    assert document(run("offsets", "reset", *CONFIRMED, "--output", "json"))["resumed"] is True
    events += [write() for _ in range(5)]
    for event in events:
        wait_record(deployment, TOPIC, 4, event)


def test_concurrent_transactions_are_not_reported_as_lost_rows(
    run: Run, deployment: Deployment, source_dsn: str, write: Callable[..., str]
) -> None:
    """A row that was written before another transaction's commit is sent after it, with a lower LSN."""
    key = str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        late = send_within(connection, "book", key, book(key), table=TABLE)
        next_event = write()
    for event in (next_event, late):
        wait_record(deployment, TOPIC, 4, event)
    run("stop")
    actual = document(run("offsets", "show", "--output", "json"))
    assert actual["slot_confirmed_flush"]["number"] <= actual["connector"]["number"]
    with psycopg.connect(source_dsn) as connection:
        behind = send_within(connection, "book", key, book(key), table=TABLE)
        write()
        written = server_position(source_dsn)
    source = deployment.pipeline.source
    with psycopg.connect(source_dsn, row_factory=dict_row) as connection:
        after = {"after": written, "upto": server_position(source_dsn)}
        assert count_undelivered.count_between(connection, source, **after) == 1, (
            "by its commit, not by its own position"
        )
    run("resume")
    wait_record(deployment, TOPIC, 4, behind)
    assert document(run("offsets", "reset", *CONFIRMED, "--output", "json"))["resumed"] is True
    wait_record(deployment, TOPIC, 4, write())


@pytest.mark.parametrize(
    ("distance", "fragment"),
    [
        (2**40, "is beyond the server's"),
        (-(2**20), "is below the slot's confirmed LSN"),
        (0, "--skip-rows"),
    ],
)
def test_rejects_an_offset_that_would_lose_rows(
    run: Run, deployment: Deployment, source_dsn: str, write: Callable[..., str], distance: int, fragment: str
) -> None:
    run("stop")
    event = write()
    path = export_with_offset(deployment, server_position(source_dsn) + distance, run)
    assert fragment in run("offsets", "reset", "--from", str(path), *CONFIRMED, code=1).stderr
    run("resume")
    wait_record(deployment, TOPIC, 4, event)


def test_export_is_not_overwritten_and_belongs_to_one_pipeline(
    run: Run, deployment: Deployment, tmp_path: Path
) -> None:
    path = tmp_path / "offsets.json"
    run("offsets", "export", str(path))
    assert "already exists" in run("offsets", "export", str(path), code=1).stderr
    content = json.loads(path.read_text())
    assert content["slot"]["name"] == "operate_s"
    content["system_identifier"] = "1"
    path.write_text(json.dumps(content))
    refused = run("offsets", "reset", "--from", str(path), *CONFIRMED, code=1)
    assert "is a backup of system_identifier 1, not " in refused.stderr
    assert connect_lifecycle.is_running(deployment.connect.status(NAME)), "nothing was touched"


def test_lists_dead_letters_without_payload_and_acknowledges_them(
    run: Run, deployment: Deployment, source_dsn: str, write: Callable[..., str]
) -> None:
    first = send(source_dsn, "book", "dead-1", {"s3cret-field": "s3cret"}, table=TABLE)
    second = send(source_dsn, "nobody", "dead-2", {"s3cret-field": "s3cret"}, table=TABLE)
    wait_record(deployment, TOPIC, 4, write())
    listed = run("dead-letter", "list", "--output", "json")
    dead_letters = document(listed)["dead_letters"]
    assert [(entry["key"], entry["event_id"], entry["reason"]) for entry in dead_letters] == [
        ("dead-1", first, "payload-invalid"),
        ("dead-2", second, "unknown-aggregate-type"),
    ]
    assert '"s3cret"' not in listed.stdout
    table = run("dead-letter", "list")
    assert "2 dead letters not acknowledged" in table.stderr
    visible = document(run("dead-letter", "show", dead_letters[0]["place"]))
    assert visible["row"]["payload"] == {"s3cret-field": "s3cret"}
    assert document(run("status", "--output", "json"))["dead_letters_unacknowledged"] == 2

    assert "1 dead letter acknowledged" in run("dead-letter", "acknowledge", "--to", dead_letters[0]["place"]).stderr
    remaining_dead_letters = document(run("dead-letter", "list", "--output", "json"))["dead_letters"]
    assert [entry["key"] for entry in remaining_dead_letters] == ["dead-2"]
    assert "1 dead letter acknowledged" in run("dead-letter", "acknowledge", "--all", "--yes").stderr
    assert document(run("dead-letter", "acknowledge", "--all", "--yes", "--output", "json")) == {"acknowledged": 0}
    assert document(run("dead-letter", "list", "--output", "json"))["dead_letters"] == []
    assert len(document(run("dead-letter", "list", "--all", "--output", "json"))["dead_letters"]) == 2
    assert "has no dead letter at 0/9999 (PARTITION/OFFSET)" in run("dead-letter", "show", "0/9999", code=1).stderr
    assert "has no partition 7" in run("dead-letter", "show", "7/0", code=1).stderr
    assert "has no record at 0/9999" in run("dead-letter", "acknowledge", "--to", "0/9999", code=1).stderr


def test_rejects_an_offset_that_another_client_has_set(
    run: Run, deployment: Deployment, source_dsn: str, write: Callable[..., str]
) -> None:
    """The offset is between the slot and the end of the WAL, as after a crash, but no topic has the row in between."""
    wait_record(deployment, TOPIC, 4, write())
    run("offsets", "reset", *CONFIRMED)  # waits until the slot is inactive, and resumes the connector
    run("stop")
    event = write()
    deployment.connect.patch_offsets(NAME, {"server": deployment.pipeline.prefix}, seed(server_position(source_dsn)))
    for command in ("resume", "apply"):
        refused = run(command, *(["--yes"] if command == "apply" else []), code=1)
        assert "no topic has a record of the 1 event in between" in refused.stderr
        assert "run `outbox offsets reset" in refused.stderr
    run("offsets", "reset", *CONFIRMED)
    run("resume")
    wait_record(deployment, TOPIC, 4, event)


def test_rejects_a_resume_that_could_lose_rows(run: Run, deployment: Deployment, source_dsn: str) -> None:
    """The slot was recreated with the same name, or the connector has no offset."""
    run("stop")
    before = deployment.connect.offsets(NAME)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(
            "insert into operate_event (aggregate_type, aggregate_id, event_type) values ('book','l','t')"
        )

        def poll() -> Observation[bool]:
            row = connection.execute("select active from pg_replication_slots where slot_name = 'operate_s'").fetchone()
            return Observation(True if row == (False,) else None, str(row))

        wait_for("the slot to be given up", poll, seconds=30)
        connection.execute("select pg_replication_slot_advance('operate_s', pg_current_wal_lsn())")
    refused = run("resume", code=1)
    assert "slot 'operate_s' is at " in refused.stderr
    assert "beyond the offset of connector" in refused.stderr
    assert "add --skip-rows" in run("offsets", "reset", *CONFIRMED, code=1).stderr
    deployment.connect.delete_offsets(NAME)
    assert "has no offset" in run("resume", code=1).stderr
    assert before
    run("offsets", "reset", *CONFIRMED)
    run("resume")
    assert document(run("status", "--output", "json"))["running"] is True
