"""Dry run: reports the offsets to read without locks or writes and, for PostgreSQL, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from msgspec import structs
from psycopg.types.json import Jsonb
from pyspark.sql import SparkSession
from tests.spark.in_memory_topic import topic_in_memory
from tests.spark.kafka_log import Log
from tests.spark.table_under_test import Target, job_for
from tests.spark.thing_records import SCHEMAS

from outbox_events.errors import OutboxError, RefusedError, UnreachableError
from outbox_spark.commands import dry_run as module
from outbox_spark.commands.dry_run import Preview, as_json, as_text, dry_run, exit_of, planned_reads, preview
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import (
    DeltaTarget,
    MaterializeJob,
    MaterializeOptions,
    MissedTombstones,
    Ordering,
    PostgresTarget,
    TableProgress,
)
from outbox_spark.kafka.offset_ranges import ClusterUnreachableError, TopicAdmin, TopicDescription
from outbox_spark.runs import materialize_table
from outbox_spark.runs.clients import Clients
from outbox_spark.sinks import open_table
from outbox_spark.sinks.postgres.connection import read_only_connection

NOW = datetime.now(UTC)
COMMITTED = TableProgress("test.thing", "id-1", 0, Ordering.SEQUENCE, {0: 5, 1: 7}, 3, NOW - timedelta(hours=1))
STATE = TopicDescription("test.thing", "id-1", {0: 0, 1: 0}, {0: 9, 1: 7})


def no_spark() -> SparkSession:
    pytest.fail("Spark was started")


def described(state: TopicDescription) -> Callable[[TopicAdmin, list[str]], dict[str, TopicDescription]]:
    return lambda _, topics: dict.fromkeys(topics, state)


@pytest.fixture(autouse=True)
def topic() -> Iterator[pytest.MonkeyPatch]:
    """Replace the response of the broker with STATE."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicAdmin, "describe_all", described(STATE))
        yield patch


@pytest.fixture(scope="module")
def postgres_job(postgres: psycopg.conninfo.ConninfoDict) -> Iterator[MaterializeJob]:
    """Return a job with a PostgreSQL target, without Spark."""
    address = {name: str(postgres[name]) for name in ("host", "user", "password")}
    target = PostgresTarget(**address, port=int(str(postgres["port"])), database=str(postgres["dbname"]), schema="dry")
    with psycopg.connect(**postgres, autocommit=True) as connection:
        connection.execute("create schema dry")
        connection.execute("create table dry.outbox_offsets (table_name text primary key, run bigint, progress jsonb)")
    yield job_for(target)
    with psycopg.connect(**postgres, autocommit=True) as connection:
        connection.execute("drop schema dry cascade")


def committed(postgres: psycopg.conninfo.ConninfoDict, table: str, progress: TableProgress | None) -> None:
    with psycopg.connect(**postgres, autocommit=True) as connection:
        connection.execute(f"create table dry.{table} ()")
        if progress is not None:
            query = "insert into dry.outbox_offsets values (%s, %s, %s)"
            connection.execute(query, (table, progress.run, Jsonb(progress.to_json())))


def test_checks_a_postgres_table_without_spark_or_lock(
    postgres_job: MaterializeJob, postgres: psycopg.conninfo.ConninfoDict, spark: SparkSession
) -> None:
    committed(postgres, "thing", COMMITTED)
    with open_table(spark, postgres_job):  # a run is active
        actual = dry_run([postgres_job], no_spark, pytest.fail)
    assert exit_of(actual) == Exit.FINDINGS
    assert actual[0].committed == COMMITTED
    assert as_text(actual) == (
        f"test.thing -> target.thing: commit 3 of {COMMITTED.committed_at:%Y-%m-%d %H:%M:%S} UTC; 4 offsets to read\n"
        "  partition 0: 5 to 9, 4 offsets"
    )


def test_reports_a_table_that_does_not_exist(postgres_job: MaterializeJob) -> None:
    actual = preview(structs.replace(postgres_job, table="none"), no_spark, Clients())
    assert actual.committed is None
    assert actual.has_work
    assert actual.offset_count == 16
    assert as_text([actual]).startswith("test.thing -> target.none: the table does not exist yet; 16 offsets to read\n")


def test_reports_nothing_to_read(
    postgres_job: MaterializeJob, postgres: psycopg.conninfo.ConninfoDict, topic: pytest.MonkeyPatch
) -> None:
    committed(postgres, "unchanged", COMMITTED)
    topic.setattr(TopicAdmin, "describe_all", described(replace(STATE, end_offsets=COMMITTED.offsets)))
    actual = dry_run([structs.replace(postgres_job, table="unchanged")], no_spark, pytest.fail)
    assert exit_of(actual) == Exit.DONE
    assert as_text(actual).endswith("UTC; nothing to read")


@pytest.mark.parametrize(
    ("progress", "is_unchanged"),
    [
        (COMMITTED, True),
        (None, False),
        (replace(COMMITTED, offsets={0: 4, 1: 7}), False),
        (replace(COMMITTED, committed_at=None), False),
        (replace(COMMITTED, committed_at=NOW - STATE.delete_retention), False),
        (replace(COMMITTED, unknown_schemas=(7,)), False),
    ],
)
def test_a_run_that_would_change_nothing_needs_no_spark(
    postgres_job: MaterializeJob,
    postgres: psycopg.conninfo.ConninfoDict,
    topic: pytest.MonkeyPatch,
    progress: TableProgress | None,
    is_unchanged: bool,
) -> None:
    topic.setattr(TopicAdmin, "describe_all", described(replace(STATE, end_offsets=COMMITTED.offsets)))
    job = structs.replace(postgres_job, table="skipped")
    with psycopg.connect(**postgres, autocommit=True) as connection:
        connection.execute("drop table if exists dry.skipped")
        connection.execute("delete from dry.outbox_offsets where table_name = 'skipped'")
    if progress is not None:
        committed(postgres, "skipped", progress)
    assert list(planned_reads([job]).unchanged) == ([0] if is_unchanged else [])


def test_number_of_offsets_is_known_before_spark_starts(
    postgres_job: MaterializeJob, postgres: psycopg.conninfo.ConninfoDict, topic: pytest.MonkeyPatch
) -> None:
    committed(postgres, "counted", COMMITTED)
    ends = {partition: end + 3 for partition, end in COMMITTED.offsets.items()}
    topic.setattr(TopicAdmin, "describe_all", described(replace(STATE, end_offsets=ends)))
    planned = planned_reads([structs.replace(postgres_job, table="counted"), job_for(DeltaTarget("lake"))])
    assert (planned.max_offsets, planned.is_complete) == (3 * len(ends) + sum(ends.values()), True)


def test_tables_after_an_error_are_left_to_the_run(
    postgres_job: MaterializeJob, postgres: psycopg.conninfo.ConninfoDict, topic: pytest.MonkeyPatch
) -> None:
    committed(postgres, "first", COMMITTED)
    topic.setattr(TopicAdmin, "describe_all", described(replace(STATE, end_offsets=COMMITTED.offsets)))
    assert isinstance(postgres_job.target, PostgresTarget)
    first = structs.replace(postgres_job, table="first")
    down = structs.replace(first, target=structs.replace(postgres_job.target, port=1))
    planned = planned_reads([first, down, first])
    assert (list(planned.unchanged), planned.is_complete) == ([0], False)


def test_waits_once_for_the_brokers_of_a_cluster(
    postgres_job: MaterializeJob, postgres: psycopg.conninfo.ConninfoDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(postgres, "reachable", COMMITTED)
    down = {"bootstrap.servers": "localhost:1"}
    requested = []

    def describe_all(admin: TopicAdmin, topics: Sequence[str]) -> dict[str, TopicDescription]:
        requested.append(admin._servers)
        if admin._servers == down["bootstrap.servers"]:
            raise ClusterUnreachableError("no response")
        return dict.fromkeys(topics, replace(STATE, end_offsets=COMMITTED.offsets))

    monkeypatch.setattr(TopicAdmin, "describe_all", describe_all)
    first = structs.replace(postgres_job, table="reachable")
    jobs = [structs.replace(first, kafka=down, topic=f"t{number}") for number in range(3)]
    planned = planned_reads([jobs[0], first, *jobs[1:]])
    assert (sorted(planned.unreachable), list(planned.unchanged)) == ([0, 2, 3], [1])
    assert len(requested) == 2


def test_an_error_of_one_topic_does_not_affect_the_others(
    postgres_job: MaterializeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe_all(*_: object) -> dict[str, TopicDescription]:
        raise UnreachableError("Topic authorization failed")

    monkeypatch.setattr(TopicAdmin, "describe_all", describe_all)
    assert planned_reads([postgres_job]).unreachable == {}


def test_rejects_a_table_that_the_job_did_not_create(
    postgres_job: MaterializeJob, postgres: psycopg.conninfo.ConninfoDict
) -> None:
    committed(postgres, "foreign_table", None)
    with pytest.raises(RefusedError, match="did not create"):
        preview(structs.replace(postgres_job, table="foreign_table"), no_spark, Clients())


def test_preview_connection_is_read_only(postgres_job: MaterializeJob, topic: pytest.MonkeyPatch) -> None:
    """The server rejects writes on the connection of a preview."""

    def write(connection: psycopg.Connection[object], *_: object) -> None:
        connection.execute("create table dry.written ()")

    topic.setattr(module, "read_progress", write)
    with pytest.raises(UnreachableError, match="read-only transaction"):
        preview(postgres_job, no_spark, Clients())


def test_reports_an_unreachable_server(postgres_job: MaterializeJob) -> None:
    assert isinstance(postgres_job.target, PostgresTarget)
    down = structs.replace(postgres_job, target=structs.replace(postgres_job.target, port=1, password="s3cret"))
    messages: list[str] = []
    actual = dry_run([down], no_spark, messages.append)
    assert exit_of(actual) == Exit.FAILED
    assert messages[0].startswith("error: test.thing -> target.thing: PostgreSQL at 127.0.0.1:1/postgres: ")
    assert "s3cret" not in "".join(messages)
    assert as_text(actual) == "test.thing -> target.thing: a run would fail; the error is on stderr"


def test_starts_spark_once_for_lake_tables(spark: SparkSession, tmp_path: Path, topic: pytest.MonkeyPatch) -> None:
    started: list[SparkSession] = []
    stopped: list[SparkSession] = []

    def stop(session: SparkSession) -> None:
        stopped.append(session)

    topic.setattr(SparkSession, "stop", stop)
    job = job_for(DeltaTarget(str(tmp_path)))

    def start() -> SparkSession:
        started.append(spark)
        return spark

    actual = dry_run([job, structs.replace(job, table="other")], start, lambda _: None)
    assert started == stopped == [spark]
    assert [item.committed for item in actual] == [None, None]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["delta_target", pytest.param("iceberg_target", marks=pytest.mark.long)])
def test_checks_a_lake_table_without_its_lease(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    target.run(Log("test.thing", topic_id=STATE.topic_id), SCHEMAS)
    with target.open() as table:  # a run is active
        actual = preview(target.job, lambda: target.spark, Clients()).committed
        assert actual is not None
        assert actual == table.committed()


# --- output, without queries of a target


def preview_of(
    monkeypatch: pytest.MonkeyPatch,
    committed: TableProgress | None,
    state: TopicDescription = STATE,
    missed: MissedTombstones = MissedTombstones.RECONCILE,
) -> Preview:
    monkeypatch.setattr(module, "_read_progress", lambda *_: (committed, datetime.now(UTC)))
    monkeypatch.setattr(TopicAdmin, "describe", lambda *_: state)
    return preview(
        structs.replace(job_for(DeltaTarget("/lake")), options=MaterializeOptions(missed_tombstones=missed)),
        no_spark,
        Clients(),
    )


def test_reports_new_partitions(topic: pytest.MonkeyPatch) -> None:
    grown = replace(STATE, start_offsets={0: 0, 1: 0, 2: 0}, end_offsets={0: 5, 1: 7, 2: 0})
    actual = preview_of(topic, COMMITTED, grown)
    assert actual.new_partitions == [2]
    assert as_text([actual]).splitlines()[1:] == ["  partition 2: 0 to 0, 0 offsets, a new partition"]


def test_reports_a_pause_beyond_the_tombstone_retention(topic: pytest.MonkeyPatch) -> None:
    old = replace(COMMITTED, committed_at=datetime.now(UTC) - timedelta(hours=30))
    assert as_text([preview_of(topic, old)]).splitlines()[-1] == (
        "  the table was last up to date 30.0 h ago and the topic retains tombstones for 24.0 h (delete.retention.ms): "
        "the run may miss tombstones; the run would compare the table with the topic"
    )
    assert preview_of(topic, COMMITTED).missed_warning is None
    assert preview_of(topic, old, replace(STATE, delete_retention=timedelta(days=2))).missed_warning is None
    with pytest.raises(RefusedError, match=r"last up to date 30\.0 h ago"):
        preview_of(topic, old, missed=MissedTombstones.REFUSE)


def test_text_cannot_control_the_terminal(topic: pytest.MonkeyPatch) -> None:
    hostile = replace(preview_of(topic, COMMITTED), missed_warning="\x1b[2J\nforged \u202e")
    assert as_text([hostile]).splitlines()[-1].startswith(r"  \x1b[2J\nforged \u202e; the run")
    assert json.loads(as_json([hostile]))  # exact


def test_reports_data_for_a_table_without_a_timestamp(topic: pytest.MonkeyPatch) -> None:
    """The next run compares a table without `committed_at`, even if the topic has no new records."""
    unknown = replace(COMMITTED, committed_at=None)
    actual = preview_of(topic, unknown, replace(STATE, end_offsets=COMMITTED.offsets))
    assert actual.offset_count == 0
    assert exit_of([actual]) == Exit.FINDINGS
    assert "the time of the last update is unknown" in as_text([actual])


def test_rejects_what_a_run_rejects(topic: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="was deleted and recreated"):
        preview_of(topic, COMMITTED, replace(STATE, topic_id="id-2"))


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([None], Exit.FINDINGS),
        ([UnreachableError("x"), None], Exit.FAILED),
        ([UnreachableError("x"), SchemaError("y")], Exit.REFUSED),
    ],
)
def test_exit_code_of_errors_takes_precedence(
    errors: list[OutboxError | None], code: Exit, topic: pytest.MonkeyPatch
) -> None:
    actual = preview_of(topic, None)
    assert exit_of([actual if error is None else Preview(actual.job, error=error) for error in errors]) == code


def test_as_json(topic: pytest.MonkeyPatch) -> None:
    actual = preview_of(topic, COMMITTED)
    entry = {
        "aggregate": "thing",
        "topic": "test.thing",
        "target": "target",
        "table": "thing",
        "run": 3,
        "committed_at": COMMITTED.committed_at.isoformat() if COMMITTED.committed_at else None,
        "offsets": 4,
        "partitions": {"0": {"from": 5, "to": 9}, "1": {"from": 7, "to": 7}},
        "new_partitions": [],
        "missed_tombstones_possible": False,
        "error": None,
        "hint": None,
        "transient": None,
    }
    assert json.loads(as_json([actual])) == {"dry_run": [entry]}
    nothing = {"run": None, "committed_at": None, "offsets": 0, "partitions": {}}
    broken = {**entry, **nothing, "error": "gone", "hint": "look", "transient": True}
    assert json.loads(as_json([Preview(actual.job, error=UnreachableError("gone", "look"))])) == {"dry_run": [broken]}


def test_reads_the_layout_that_the_sink_writes(postgres_target: Target) -> None:
    """The dry run uses a separate query, which must match the sink."""
    with topic_in_memory(Log("test.thing", partitions=1)):
        materialize_table.materialize(postgres_target.spark, postgres_target.job, lambda _: None)
    actual, time = module._read_progress(postgres_target.job, no_spark, read_only_connection)
    assert actual == postgres_target.committed()
    assert actual is not None
    assert actual.committed_at is not None
    assert actual.committed_at < time
    assert actual is not None
    assert actual.run == 1
