"""The job on a cluster: spark-submit with a zip and a job file, and executors without outbox-kit's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.cluster.conftest import Cluster
from tests.integration.support import Deploy, records
from tests.integration.transforms.test_records import book

from outbox_events import emit
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.stack import StackState
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.materialize import main
from outbox_spark.jobs.job_file import variables

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    # Py4J's socket to the JVM of the session that reads the tables.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PASSWORD = "OUTBOX__ENVIRONMENT__TARGETS__WAREHOUSE__PASSWORD"
MATERIALIZATIONS = [
    {"aggregate": "book", "target": "warehouse", "table": "cluster_book"},
    {"aggregate": "book", "target": "lake", "table": "cluster_book"},
]
TITLES = {str(uuid4()): f"title {number}" for number in range(150)}
DELETED = [str(uuid4()) for _ in range(50)]
BATCH_SECONDS = 240
LOST_EXECUTORS = 3
SPARK_TIME = "%Y-%m-%dT%H:%M:%S.%f%Z"


def write(state: StackState) -> int:
    """Write two events for every key, the second with a title or a tombstone. Return the number of records."""
    with psycopg.connect(state.postgres) as connection:
        for key in [*TITLES, *DELETED]:
            send(connection, key, book(key, title="first"))
        for key, title in TITLES.items():
            send(connection, key, book(key, title=title))
        for key in DELETED:
            send(connection, key, None)
    return 2 * (len(TITLES) + len(DELETED))


def send(connection: psycopg.Connection[tuple[object, ...]], key: str, payload: dict[str, object] | None) -> None:
    emit(
        connection,
        aggregate_type="book",
        aggregate_id=key,
        event_type="book_changed",
        payload=payload,
        table="public.cluster_event",
    )


@pytest.fixture(scope="module")
def job(project: Path, state: StackState, deploy_once: Deploy, cluster: Cluster) -> Path:
    """Write a job file with two tables, and fill the topic of the tables."""
    deployment: Deployment = deploy_once("cluster", materializations=MATERIALIZATIONS)
    expected = write(state)

    def poll() -> Observation[bool]:
        actual = len(records(deployment, "cluster.book", 4))
        return Observation(True if actual == expected else None, f"{actual} of {expected} records")

    wait_for("the topic to be filled", poll, seconds=60)
    path = cluster.folder / "job.json"
    assert main(["-p", str(project / "connectors/cluster.yaml"), "--write-job", str(path)]) == Exit.DONE
    return path


@pytest.fixture(scope="module")
def secrets(project: Path) -> dict[str, str]:
    stack = json.loads((project / "build/stack/state.json").read_text())["environment"]
    return {PASSWORD: stack["materializer_password"]}


def warehouse(state: StackState) -> dict[str, str]:
    with psycopg.connect(state.target) as connection:
        return dict(connection.execute("select aggregate_id, title from cluster_book").fetchall())


def lake(project: Path) -> dict[str, str]:
    """Read the table with a Spark session of this process."""
    from outbox_spark.session.spark_session import start_session  # noqa: PLC0415 - starts a JVM

    spark: SparkSession = start_session("outbox-tests")
    try:
        rows = spark.read.format("delta").load(str(project / "build/stack/lake/cluster_book")).collect()
    finally:
        spark.stop()
    return {row["aggregate_id"]: row["title"] for row in rows}


def test_job_file_contains_no_secret(job: Path, secrets: dict[str, str]) -> None:
    text = job.read_text()
    assert variables(text) == [PASSWORD]
    assert secrets[PASSWORD] not in text


def test_lost_executors_and_a_lost_worker_cost_no_batch(
    job: Path, cluster: Cluster, secrets: dict[str, str], state: StackState, project: Path
) -> None:
    """Kill executors during batches, with their shuffled and persisted rows, and finally a worker."""
    lines = cluster.folder / "metrics.jsonl"
    options = ["--job", str(job), "--output", "json", "--batch-records", "40", "--metrics", str(lines)]
    driver, killed = cluster.submit(*options, secrets=secrets), set[int]()

    def poll() -> Observation[bool]:
        assert driver.process.poll() is None, driver.output
        number = lines.read_text().count("\n") if lines.exists() else 0
        # If an executor is added during a batch, some persisted rows of the batch are only on the other executor.
        if (
            number
            and number not in killed
            and executors_since(cluster, lines.stat().st_mtime) == 2
            and is_busy(cluster)
        ):
            cluster.kill_executor(f"worker-{len(killed) % 2 + 1}")
            killed.add(number)
        return Observation(True if len(killed) == LOST_EXECUTORS else None, f"{len(killed)} executors were killed")

    wait_for("executors to be killed", poll, seconds=BATCH_SECONDS, interval=0.1)
    cluster.kill("worker-1")
    results = driver.results()
    assert {target: result["status"] for target, result in results.items()} == dict.fromkeys(results, "changed")
    assert [results[name]["records"] for name in ("warehouse", "lake")] == [400, 400]
    assert warehouse(state) == TITLES
    assert lake(project) == TITLES
    batches = [json.loads(line) for line in lines.read_text().splitlines()]
    assert sum(line["event"] == "run" for line in batches) == 2
    assert all(line["spark"]["tasks"] > 0 for line in batches if line["event"] == "batch")


def executors_since(cluster: Cluster, time: float) -> int:
    """Return the number of active executors that were added before a time."""
    executors = [entry for entry in cluster.driver_state("executors") if entry["id"] != "driver" and entry["isActive"]]
    added = [datetime.strptime(entry["addTime"], SPARK_TIME).replace(tzinfo=UTC) for entry in executors]
    return sum(when.timestamp() < time for when in added)


def is_busy(cluster: Cluster) -> bool:
    return any(entry["numActiveTasks"] for entry in cluster.driver_state("jobs?status=running"))


def test_next_run_reads_nothing(job: Path, cluster: Cluster, secrets: dict[str, str]) -> None:
    driver = cluster.submit("--job", str(job), "--output", "json", secrets=secrets)
    assert {result["status"] for result in driver.results().values()} == {"unchanged"}


def test_dry_run_reports_nothing_to_read(job: Path, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Query the real broker, which has no new records, without starting Spark."""
    monkeypatch.setenv(PASSWORD, secrets[PASSWORD])
    assert main(["--job", str(job), "--target", "warehouse", "--dry-run"]) == Exit.DONE


def test_runs_rounds_until_sigterm(job: Path, cluster: Cluster, secrets: dict[str, str], state: StackState) -> None:
    """Rows written between rounds are delivered. After SIGTERM, the command and its JVM end, with exit code 0."""
    metrics, log_file = cluster.folder / "rounds.jsonl", cluster.folder / "rounds.log"
    command = [sys.executable, "-m", "outbox_spark", "--job", str(job), "--target", "warehouse"]
    command += ["--interval", "0.5", "--metrics", str(metrics)]
    with log_file.open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **secrets}, stderr=log, stdout=log)
    try:

        def poll(status: str) -> Observation[bool]:
            assert process.poll() is None, log_file.read_text()
            entries = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
            actual = [entry["status"] for entry in entries if entry["event"] == "run"]
            return Observation(True if status in actual else None, f"{len(actual)} runs: {log_file.read_text()[-300:]}")

        wait_for("a round with nothing new", lambda: poll("unchanged"), seconds=BATCH_SECONDS)
        with psycopg.connect(state.postgres) as connection:
            send(connection, next(iter(TITLES)), book(next(iter(TITLES)), title="meanwhile"))
        wait_for("a round with a change", lambda: poll("changed"), seconds=BATCH_SECONDS)
        process.terminate()
        assert process.wait(timeout=BATCH_SECONDS) == Exit.DONE, log_file.read_text()
    finally:
        process.kill()
    assert "meanwhile" in warehouse(state).values()
    messages = log_file.read_text()
    assert "SIGTERM: stopping after the current batch" in messages
    assert "\nstopped\n" in messages
    assert messages.count("nothing new") <= 2, "reported in every round"


def importable(python: Path, *names: str, path: str = "") -> str:
    code = f"import importlib.util as u; print([name for name in {names} if u.find_spec(name)])"
    done = subprocess.run([python, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_driver_and_executors_have_only_required_packages(cluster: Cluster) -> None:
    """Check a precondition of the other tests."""
    required, excluded = ("confluent_kafka", "psycopg", "requests"), ("outbox_kit", "outbox_spark", "pydantic", "yaml")
    names = (*required, *excluded, "fastavro")
    assert importable(cluster.folder / "executor/bin/python", *names) == "[]"
    packages = str(cluster.folder / "packages")
    actual = importable(cluster.folder / "driver/bin/python", *names, path=packages)
    assert actual == str(list(required))
