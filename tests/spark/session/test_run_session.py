"""Runs in an application that does other work: they use separate sessions, and do not change the caller's session."""

from __future__ import annotations

import gc
import json
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD, InheritableThread
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target, job_for
from tests.spark.thing_records import SCHEMAS, CrashError, put
from tests.variations import variations

from outbox_spark.decoding.columns import columns_of
from outbox_spark.decoding.rows import types_of
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import IcebergTarget, Outcome
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.session import run_session as run_session_module
from outbox_spark.session.run_session import _loaded_catalogs, active_session, hadoop_configuration, run_session
from outbox_spark.session.stage_metrics import StageMetrics, group_of
from outbox_spark.sinks import DeltaTable, IcebergTable
from outbox_spark.sinks.iceberg.catalog import configure_catalog
from outbox_spark.sinks.lake.merge_sql import MergeStatement

LAKES = ["delta_target", pytest.param("iceberg_target", marks=pytest.mark.long)]
NASTY = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "America/St_Johns",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.sources.useV1SourceList": "delta,kafka",
    "spark.databricks.delta.commitInfo.enabled": "false",
    "spark.databricks.delta.commitInfo.userMetadata": '{"outbox": {"token": "of the caller"}}',
    "spark.sql.iceberg.snapshot-property.outbox": '{"token": "of the caller"}',
    "spark.wap.branch": "audit",
    "spark.sql.shuffle.partitions": "3",
}


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run `work` in another thread, and return its result or error."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = InheritableThread(target=run)
    thread.start()
    thread.join(240)
    return future


def lake(request: pytest.FixtureRequest, name: str) -> Target:
    target: Target = request.getfixturevalue(name)
    return target


def run(target: Target, live: LiveTopic) -> Outcome:
    return materialize(target.spark, target.job, lambda _: None, topic=live.topic())


def filled(target: Target, *parts: str) -> tuple[Log, LiveTopic]:
    """Return a log, after one run for the keys in each part. Every run adds at least one file to the table."""
    log = Log("test.thing")
    live = LiveTopic(target.spark, log, SCHEMAS)
    for part in parts:
        for key in part:
            put(log, key, ord(key))
        run(target, live)
    return log, live


def optimize(target: Target) -> None:
    """Compact the files of a Delta table in the caller's session."""
    with target.open() as table:
        assert isinstance(table, DeltaTable)
        name = table._storage.sql_name()
        target.spark.sql(f"OPTIMIZE {name}").collect()
        assert next(table._storage.commits())["operation"] == "OPTIMIZE"
        # With Spark's default of 10,000, listing takes most of the time.
        with with_settings(target.spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}):
            target.spark.sql(f"VACUUM {name}").collect()


def insert_into_other(target: Target) -> None:
    """Write another Iceberg table in the caller's session, and check the summary of the table's snapshot."""
    with target.open() as table:
        assert isinstance(table, IcebergTable)
        storage = table._storage
        target.spark.sql(f"CREATE TABLE {storage.sql_name('_other')} USING iceberg AS SELECT 1 AS n").collect()
        assert not storage.load("_other").currentSnapshot().summary().containsKey("outbox")


@pytest.mark.parametrize(
    ("name", "parts", "other_work"),
    variations([("iceberg_target", ["abcd"], insert_into_other), ("delta_target", ["ab", "cd"], optimize)]),
)
def test_commits_of_another_thread_do_not_contain_the_progress(
    request: pytest.FixtureRequest,
    name: str,
    parts: list[str],
    other_work: Callable[[Target], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other thread works after a run has set the progress and before the run's MERGE, which then fails."""
    target = lake(request, name)
    log, live = filled(target, *parts)
    put(log, "e", 200)
    done: list[Future[None]] = []

    def work_and_crash(*_: object) -> str:
        done.append(in_thread(lambda: other_work(target)))
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr("outbox_spark.sinks.lake.lease.Lease.acquire", lambda _: None)
        patch.setattr(MergeStatement, "sql", work_and_crash)
        with pytest.raises(CrashError):
            run(target, live)
    assert [future.exception() for future in done] == [None]
    assert run(target, live).records == 1
    assert set(target.state()) == set("abcde")


@pytest.mark.long
def test_progress_in_a_commit_of_optimize_is_ignored(delta_target: Target) -> None:
    """Earlier versions used the caller's session, so an OPTIMIZE of another thread could commit their progress."""
    log, live = filled(delta_target, "ab", "cd")
    with delta_target.open() as table:
        assert isinstance(table, DeltaTable)
        table.committed()
        assert table._progress is not None
        progress = {**table._progress, "run": 3, "offsets": {"0": 9, "1": 9}, "token": "of OPTIMIZE"}
    metadata = {"spark.databricks.delta.commitInfo.userMetadata": json.dumps({"outbox": progress})}
    with with_settings(delta_target.spark, metadata):
        optimize(delta_target)
    put(log, "e", 200)
    assert run(delta_target, live).records == 1
    assert set(delta_target.state()) == set("abcde")


@contextmanager
def with_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


@pytest.mark.parametrize("name", LAKES)
def test_runs_of_one_application_at_the_same_time(
    request: pytest.FixtureRequest, spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the MERGE of a run, another table is merged; a second run of the same table fails.

    Metrics count only the stages of their own run.
    """
    target, metrics, merge_sql = lake(request, name), StageMetrics(spark), MergeStatement.sql
    other = replace(target, job=structs.replace(target.job, table="other"))
    log, live = filled(target, "abcd")
    put(log, "e", 200)
    overlaps: list[Future[Outcome]] = []
    tasks: list[int] = []

    def other_runs(*arguments: Any) -> str:  # noqa: ANN401 - of MergeStatement.sql
        if threading.current_thread() is threading.main_thread():
            metrics.since_last(group_of(target.job))
            assert in_thread(lambda: filled(other, "abcd")).exception() is None
            overlaps.append(in_thread(lambda: run(target, live)))
            tasks.append(metrics.since_last(group_of(target.job))["tasks"])
        return merge_sql(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(MergeStatement, "sql", other_runs)
        assert run(target, live).records == 1
    assert [type(future.exception()) for future in overlaps] == [OverlapError]
    assert tasks == [0]
    progress = target.committed()
    assert progress is not None
    assert progress.offsets == log.end()
    assert set(target.state()) == set("abcde")
    assert set(other.state()) == set("abcd")


FIELDS = [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]
ADDED = {"name": "note", "type": "string", "default": 'it\'s a \\\\ "quoted" \\n'}
RECORD = {"type": "record", "name": "Thing", "fields": FIELDS}
VALUE: dict[str, Any] = {
    "at": datetime(1500, 3, 1, 3, 30, 0, 123456, UTC),
    "day": date(1500, 3, 1),
    "price": Decimal("1.25"),
}


@pytest.mark.parametrize("name", LAKES)
def test_settings_of_the_caller_neither_change_rows_nor_are_changed(
    request: pytest.FixtureRequest, spark: SparkSession, name: str
) -> None:
    target = lake(request, name)
    caller = spark.newSession()
    for key, value in NASTY.items():
        caller.conf.set(key, value)
    caller.range(3).createOrReplaceTempView("mine")
    log = Log("test.thing")
    log.append("a", framed(RECORD, 1, VALUE), sequence(1))
    wider = {**RECORD, "fields": [*FIELDS, ADDED]}
    wider_schemas = Schemas({1: RECORD, 2: wider}, newest=2)
    with calls_leave_no_trace(caller):
        run_as(caller, target, LiveTopic(spark, log, Schemas({1: RECORD}, newest=1)))
        log.append("b", framed(wider, 2, {**VALUE, "note": "new"}), sequence(2))
        outcome = run_as(caller, target, LiveTopic(spark, log, wider_schemas))
    assert (outcome.upserts, outcome.quarantined) == (1, 0)
    with target.open() as table:
        assert isinstance(table, DeltaTable | IcebergTable)
        rows = table._storage.read().select("aggregate_id", "day", "price", "note", F.unix_micros("at").alias("at"))
        actual = {row.aggregate_id: row.asDict() for row in rows.collect()}
    micros = (VALUE["at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    notes = {"a": ADDED["default"], "b": "new"}
    same = {**VALUE, "at": micros}
    assert actual == {key: {"aggregate_id": key, **same, "note": note} for key, note in notes.items()}


def run_as(caller: SparkSession, target: Target, live: LiveTopic) -> Outcome:
    return materialize(caller, target.job, lambda _: None, topic=live.topic())


@contextmanager
def calls_leave_no_trace(caller: SparkSession) -> Iterator[None]:
    """Check that all state that a program shares with the runs is the same after `with`."""
    context, jvm = caller.sparkContext, caller._jvm
    assert jvm is not None
    context.setJobGroup("of the caller", "its description")
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    previously_active = sessions.active()
    sessions.setActiveSession(caller._jsparkSession)

    def state() -> dict[str, Any]:
        properties = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
        return {
            "settings": caller.conf.getAll,
            "views": [table.name for table in caller.catalog.listTables() if table.isTemporary],
            "properties": {name: context.getLocalProperty(name) for name in properties},
            "handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
            "stdout": jvm.java.lang.System.identityHashCode(jvm.java.lang.System.out),
            "to_df": RDD.toDF,
            "active": (SparkSession._activeSession, SparkSession.getActiveSession()),
            "threads": {thread.name for thread in threading.enumerate() if thread.name == "outbox-lease"},
        }

    before = state()
    try:
        yield
        assert state() == before
        assert active_session()._jsparkSession.equals(caller._jsparkSession)
        assert not context._jsc.sc().isStopped()
    finally:
        sessions.setActiveSession(previously_active)
        for name in before["properties"]:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


def test_session_has_catalogs_and_credentials_of_the_caller(spark: SparkSession, delta_target: Target) -> None:
    caller = spark.newSession()
    caller.conf.set("spark.sql.catalog.mine.uri", "http://catalog")
    caller.conf.set("fs.s3a.access.key", "key")
    caller.conf.set("fs.s3a.secret.key", "secret")
    caller.conf.set("spark.sql.ansi.enabled", "false")
    with run_session(caller, delta_target.job) as session:
        assert session.conf.get("spark.sql.catalog.mine.uri") == "http://catalog"
        configuration = hadoop_configuration(session)
        assert (configuration.get("fs.s3a.access.key"), configuration.get("fs.s3a.secret.key")) == ("key", "secret")
        assert session.conf.get("spark.sql.ansi.enabled") == "true"
        with run_session(session, delta_target.job) as inner:
            assert inner is session
    assert spark.conf.get("spark.sql.catalog.mine.uri", None) is None


def test_active_session_of_python_is_that_of_the_caller(spark: SparkSession, delta_target: Target) -> None:
    """createDataFrame makes its session active for all threads. Here, the runs of two threads overlap."""
    caller = spark.newSession()
    caller.range(1).collect()  # Delta's extension changes settings on the first query of a session
    first, second = run_session(caller, delta_target.job), run_session(caller, delta_target.job)
    with calls_leave_no_trace(caller), ThreadPoolExecutor(1) as other_thread:
        first.__enter__().createDataFrame([(1,)], "n int")
        other_thread.submit(second.__enter__).result(60).createDataFrame([(1,)], "n int")
        first.__exit__(None, None, None)
        other_thread.submit(second.__exit__, None, None, None).result(60)
        with run_session(caller, delta_target.job) as session:
            assert active_session() is session
            session.createDataFrame([(1,)], "n int")


def test_to_df_of_python_is_that_of_the_caller(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor of SparkSession replaces RDD.toDF. Here, two threads construct sessions at the same time."""
    to_df, constructs, restored = RDD.toDF, threading.Event(), threading.Event()
    threads: list[Future[SparkSession]] = []

    def construct(*arguments: Any) -> SparkSession:  # noqa: ANN401 - of SparkSession
        session = SparkSession(*arguments)
        if threading.current_thread() is threading.main_thread():
            threads.append(executor.submit(active_session))
            constructs.wait(1)
        else:
            constructs.set()
            assert restored.wait(60)
        return session

    monkeypatch.setattr(run_session_module, "SparkSession", construct)
    with ThreadPoolExecutor(1) as executor:
        active_session()
        restored.set()
    assert threads[0].result()._jsparkSession.equals(spark._jsparkSession)
    assert RDD.toDF is to_df


def test_no_cache_retains_the_session_of_a_run(spark: SparkSession, delta_target: Target) -> None:
    schema = json.dumps({**RECORD, "name": "Unique"})
    with run_session(spark, delta_target.job) as session:
        first = types_of(tuple(columns_of(schema, "t-value")), schema)
        reference = weakref.ref(session)
    del session
    gc.collect()
    assert reference() is None
    with run_session(spark, delta_target.job):
        assert types_of(tuple(columns_of(schema, "t-value")), schema) is first


def test_closes_the_iceberg_catalog_of_a_run(spark: SparkSession) -> None:
    properties = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}
    job = job_for(IcebergTarget("n", properties))
    caller_catalog = create_namespace(spark, IcebergTarget("n", properties))
    with run_session(spark, job) as session:
        assert list(_loaded_catalogs(session)) == []
        configure_catalog(session, IcebergTarget("n", {**properties, "unused": "true"}))
        catalog = create_namespace(session, IcebergTarget("n", properties))
        with run_session(session, job):
            pass
        assert catalog.listNamespaces().size() == 1
    assert catalog.listNamespaces().size() == 0  # InMemoryCatalog.close() removes the namespaces
    assert caller_catalog.listNamespaces().size() == 1
    assert len(list(_loaded_catalogs(session))) == 1


def test_keeps_the_locks_of_hadoop_catalogs(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop catalogs of runs in other threads use the same lock manager."""
    target = IcebergTarget("n", {"type": "hadoop", "warehouse": str(tmp_path)})
    jvm: Any = spark._jvm
    locks = jvm.org.apache.iceberg.util.LockManagers.defaultLockManager()
    assert locks.acquire("table", "of another run")
    with run_session(spark, job_for(target)) as session:
        create_namespace(session, target)
    assert locks.release("table", "of another run")


def test_error_of_close_does_not_hide_the_error_of_the_run(
    spark: SparkSession, delta_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Iterator[object]:
        raise Py4JError("closed")

    monkeypatch.setattr(run_session_module, "_loaded_catalogs", fail)
    with run_session(spark, delta_target.job):
        pass
    with pytest.raises(CrashError), run_session(spark, delta_target.job):
        raise CrashError


def create_namespace(session: SparkSession, target: IcebergTarget) -> Any:  # noqa: ANN401 - org.apache.iceberg.catalog
    """Create a namespace in the catalog of the target, which loads the catalog. Return the catalog."""
    name = configure_catalog(session, target)
    session.sql(f"CREATE NAMESPACE {name}.n").collect()
    return session._jsparkSession.sessionState().catalogManager().catalog(name).icebergCatalog()
