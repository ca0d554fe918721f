"""The Spark job on the embedded stack: the first run, a run with changes, and a dry run without new records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.integration.support import Deploy, wait_record
from tests.integration.transforms.test_records import book

from outbox_events import emit
from outbox_kit.deployment import Deployment
from outbox_kit.stack import StackState
from outbox_kit.stack.services.java import FAST_START_OPTIONS

# The demo runs the same job on both targets. The fixture runs it twice, each time in a new JVM.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MATERIALIZATIONS = [
    {"aggregate": "book", "target": "warehouse", "table": "shelf_book"},
    {"aggregate": "book", "target": "lake", "table": "shelf_book"},
]
UNCHANGED, CHANGED, DELETED = (str(uuid4()) for _ in range(3))


def send(state: StackState, key: str, payload: dict[str, object] | None) -> str:
    with psycopg.connect(state.postgres) as connection:
        event = emit(
            connection,
            aggregate_type="book",
            aggregate_id=key,
            event_type="book_changed",
            payload=payload,
            table="public.shelf_event",
        )
    return str(event)


def materialize(project: Path) -> dict[str, Any]:
    """Run the job. Return its outcome by target."""
    command = [sys.executable, "-m", "outbox_spark", "-p", "connectors/shelf.yaml", "--output", "json"]
    done = subprocess.run(
        [*command, "--export", "build/rows"],
        cwd=project,
        env={"SPARK_SUBMIT_OPTS": FAST_START_OPTIONS, **os.environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {item["target"]: item for item in json.loads(done.stdout)["materializations"]}


def warehouse(state: StackState) -> dict[str, str]:
    with psycopg.connect(state.target) as connection:
        rows = connection.execute("select aggregate_id, title from shelf_book").fetchall()
    return dict(rows)


def lake(project: Path) -> dict[str, str]:
    files = (project / "build/rows/lake/shelf_book").glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {row["aggregate_id"]: row["title"] for row in rows}


@pytest.fixture(scope="module")
def runs(project: Path, state: StackState, deploy_once: Deploy) -> list[dict[str, Any]]:
    """Return the outcomes of two runs: three books, then one changed and one deleted book."""
    deployment: Deployment = deploy_once("shelf", materializations=MATERIALIZATIONS)
    for key in (CHANGED, DELETED):
        send(state, key, book(key))
    wait_record(deployment, "shelf.book", 4, send(state, UNCHANGED, book(UNCHANGED)))
    first = materialize(project)
    send(state, CHANGED, book(CHANGED, title="changed"))
    wait_record(deployment, "shelf.book", 4, send(state, DELETED, None))
    return [first, materialize(project)]


@pytest.mark.parametrize("target", ["warehouse", "lake"])
def test_runs_apply_only_new_records(runs: list[dict[str, Any]], target: str) -> None:
    first, second = (run[target] for run in runs)
    assert (first["records"], first["upserts"], first["deletes"]) == (3, 3, 0)
    assert (second["records"], second["upserts"], second["deletes"], second["tombstones"]) == (2, 1, 1, 1)
    assert second["offsets"]["from"] == first["offsets"]["to"]


def test_tables_equal_the_committed_rows(runs: list[dict[str, Any]], project: Path, state: StackState) -> None:
    del runs
    expected = {UNCHANGED: str(book(UNCHANGED)["title"]), CHANGED: "changed"}
    assert warehouse(state) == expected
    assert lake(project) == expected


def test_dry_run_reports_what_the_next_run_reads(
    runs: list[dict[str, Any]], library: Deployment, project: Path, state: StackState
) -> None:
    """Query the real broker and target without Spark. The exit code is 0 if a run would read nothing, otherwise 3."""
    del runs
    command = [sys.executable, "-m", "outbox_spark", "-p", "connectors/shelf.yaml", "--dry-run"]

    def dry_run() -> subprocess.CompletedProcess[str]:
        options = ["--target", "warehouse", "--output", "json"]
        return subprocess.run(
            [*command, *options], cwd=project, capture_output=True, text=True, timeout=60, check=False
        )

    before = dry_run()
    assert (before.returncode, before.stderr) == (0, "")
    wait_record(library, "shelf.book", 4, send(state, UNCHANGED, book(UNCHANGED)))
    after = dry_run()
    assert (after.returncode, after.stderr) == (3, "")
    entry = json.loads(after.stdout)["dry_run"][0]
    assert entry["offsets"] >= 1
    assert entry["run"] == 2
    assert entry["missed_tombstones_possible"] is False
