"""The command `outbox-rebuild`: readers get either the old or the new rows, and views and grants remain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import structs
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target
from tests.spark.thing_records import THING, CrashError, crash, delete, poison, put

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_spark.commands import rebuild as rebuild_module
from outbox_spark.commands.rebuild import rebuild, shadow_of
from outbox_spark.errors import ForeignTableError, OverlapError
from outbox_spark.jobs.model import (
    DeltaTarget,
    IcebergTarget,
    MaterializeJob,
    Mode,
    Outcome,
    PostgresTarget,
    Reporter,
    Status,
)
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.session.run_session import active_session
from outbox_spark.sinks import IcebergTable, PostgresTable, TargetTable
from outbox_spark.sinks.iceberg import table as iceberg_module
from outbox_spark.sinks.iceberg.catalog import table_name

WIDER = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "string"}]}
SCHEMAS = Schemas({1: THING, 2: WIDER}, newest=1)
COMPANIONS = {"thing__tombstones", "thing__quarantine"}


def history() -> Log:
    log = Log("test.thing")
    for commit, key in enumerate(("a", "b", "c", "gone"), start=1):
        put(log, key, commit)
    delete(log, "gone", 5)
    poison(log, "poison", 6)
    put(log, "d", 7)
    return log


def rebuilt(target: Target, live: LiveTopic, restart: bool = False, max_records: int = 100) -> Outcome:
    messages: list[str] = []
    # The records of the log are older than the default retention of the ledger.
    job = structs.replace(target.job, options=structs.replace(target.job.options, tombstone_ttl=3650 * 86400))
    return rebuild(target.spark, job, messages.append, max_records, restart=restart, topic=live.topic())


def sql(target: Target, statement: str, *names: str) -> list[tuple[object, ...]]:
    """Run a statement on PostgreSQL in which each {} is a name in the target's schema."""
    assert target.dsn is not None
    assert isinstance(target.job.target, PostgresTarget)
    schema = target.job.target.schema
    with psycopg.connect(**target.dsn) as connection:
        done = connection.execute(SQL(statement).format(*(Identifier(schema, name) for name in names)))  # type: ignore[arg-type]
        return done.fetchall() if done.description else []


def names_of(target: Target) -> set[str]:
    """Return the names of the existing tables."""
    if isinstance(target.job.target, PostgresTarget):
        query = "select relname from pg_class where relkind = 'r' and relnamespace = '{}'::regnamespace"
        return {str(name) for (name,) in sql(target, query.replace("{}", target.job.target.schema))}
    if isinstance(target.job.target, IcebergTarget):  # of a catalog that is a folder
        path = f"{target.job.target.catalog['warehouse']}/{target.job.target.namespace}"
    else:
        path = target.job.target.path  # type: ignore[union-attr]
    jvm = target.spark._jvm
    assert jvm is not None
    files = jvm.org.apache.hadoop.fs.FileSystem.get(target.spark._jsparkSession.sessionState().newHadoopConf())
    return {status.getPath().getName() for status in files.listStatus(jvm.org.apache.hadoop.fs.Path(path))}


def test_rebuilds_a_table_with_ledger_quarantine_and_progress(spark: SparkSession, target: Target) -> None:
    log = history()
    old = Log("test.thing", topic_id="old")
    for commit, key in enumerate(("a", "wrong", "b", "x", "y", "z"), start=1):
        put(old, key, commit)
    for _ in range(3):
        put(old, "a", 9)
        target.run(old, SCHEMAS)
    live = LiveTopic(spark, log, SCHEMAS)
    with pytest.raises(RefusedError, match="deleted and recreated") as refused:
        materialize(spark, target.job, print, topic=live.topic())
    assert "outbox-rebuild" in refused.value.hint
    outcome = rebuilt(target, live)
    assert (outcome.table, outcome.records, outcome.quarantined) == ("thing", 7, 1)
    assert target.state("n") == {key: {"n": n} for key, n in (("a", 1), ("b", 2), ("c", 3), ("d", 7))}
    assert not [name for name in names_of(target) if "rebuild" in name]
    committed = target.committed()
    assert committed is not None
    assert (committed.topic_id, committed.offsets) == ("topic-1", log.end())
    # The ledger was copied: the deleted key is not recreated, and the next run continues.
    put(log, "gone", 4)
    put(log, "a", 8)
    assert target.run(log, SCHEMAS).upserts == 1
    assert set(target.state()) == {"a", "b", "c", "d"}
    assert [row["reason"] for row in target.rows("__quarantine")] == ["not-wire-format"]


def test_creates_a_missing_table(spark: SparkSession, target: Target) -> None:
    live = LiveTopic(spark, history(), SCHEMAS)
    rebuilt(target, live)
    assert set(target.state()) == {"a", "b", "c", "d"}
    put(live.log, "e", 8)
    assert target.run(live.log, SCHEMAS).upserts == 1
    assert names_of(target) >= {"thing", *COMPANIONS}


def test_keeps_stale_rows_stale(spark: SparkSession, target: Target) -> None:
    log = history()
    poison(log, "a", 8)
    rebuilt(target, LiveTopic(spark, log, SCHEMAS))
    put(log, "b", 9)
    poison(log, "c", 10)  # so that every target recomputes the flags
    target.run(log, SCHEMAS)
    assert {key: row["_stale"] for key, row in target.state("_stale").items()} == {
        "a": True,
        "b": False,
        "c": True,
        "d": False,
    }


def test_resumes_an_interrupted_rebuild(
    spark: SparkSession, postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = history()
    postgres_target.run(log, SCHEMAS)
    before = postgres_target.rows()
    live = LiveTopic(spark, log, SCHEMAS)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTable, "replace_by", crash)
        with pytest.raises(CrashError):
            rebuilt(postgres_target, live)
    assert postgres_target.rows() == before
    put(log, "e", 8)
    assert rebuilt(postgres_target, live).records == 1
    assert set(postgres_target.state()) == {"a", "b", "c", "d", "e"}


def test_drops_a_shadow_table_of_another_topic(spark: SparkSession, postgres_target: Target) -> None:
    stale = Log("test.thing", topic_id="old")
    put(stale, "old", 1)
    shadow = replace(postgres_target, job=shadow_of(postgres_target.job))
    shadow.run(stale, SCHEMAS)
    assert rebuilt(postgres_target, LiveTopic(spark, history(), SCHEMAS)).records == 7
    assert set(postgres_target.state()) == {"a", "b", "c", "d"}


@pytest.mark.long
def test_restart_drops_the_shadow_table(spark: SparkSession, postgres_target: Target) -> None:
    log = history()
    shadow = replace(postgres_target, job=shadow_of(postgres_target.job))
    shadow.run(log, SCHEMAS)
    assert rebuilt(postgres_target, LiveTopic(spark, log, SCHEMAS), restart=True).records == 7


def test_keeps_views_and_grants_and_does_not_write_equal_rows(spark: SparkSession, postgres_target: Target) -> None:
    target, log = postgres_target, history()
    target.run(log, SCHEMAS)
    sql(target, "create view {} as select aggregate_id, n from {}", "v", "thing")
    sql(target, "grant select on {} to public", "thing")
    sql(target, "update {} set n = 99 where aggregate_id = 'b'", "thing")
    sql(target, "insert into {} select 'zombie', n, _sequence, 0, 0, 0, now() from {} limit 1", "thing", "thing")
    places = "select aggregate_id, ctid::text from {} where aggregate_id in ('a', 'c', 'd') order by 1"
    before = sql(target, places, "thing")
    rebuilt(target, LiveTopic(spark, log, SCHEMAS))
    assert sql(target, "select * from {} order by 1", "v") == [("a", 1), ("b", 2), ("c", 3), ("d", 7)]
    assert sql(target, places, "thing") == before
    grants = "select 1 from information_schema.role_table_grants where grantee = 'PUBLIC' and table_schema = '{}'"
    assert isinstance(target.job.target, PostgresTarget)
    assert sql(target, grants.replace("{}", target.job.target.schema)) == [(1,)]


def test_older_snapshot_returns_the_old_rows(spark: SparkSession, postgres_target: Target) -> None:
    """TRUNCATE or renaming tables would not ensure this."""
    target, log = postgres_target, history()
    target.run(log, SCHEMAS)
    sql(target, "update {} set n = 99", "thing")
    assert target.dsn is not None
    with psycopg.connect(**target.dsn) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1")
        reader.execute("select count(*) from pg_class")  # takes the snapshot; the table is not locked
        rebuilt(target, LiveTopic(spark, log, SCHEMAS))
        assert isinstance(target.job.target, PostgresTarget)
        query = SQL("select n from {}").format(Identifier(target.job.target.schema, "thing"))
        assert reader.execute(query).fetchall() == [(99,)] * 4
    assert {row["n"] for row in target.rows()} == {1, 2, 3, 7}


def test_rebuilds_a_changed_column_type_unless_a_view_depends_on_it(
    spark: SparkSession, postgres_target: Target
) -> None:
    target, log = postgres_target, history()
    target.run(log, SCHEMAS)
    texts = Log("test.thing", topic_id="topic-2")
    texts.append("a", framed(WIDER, 2, {"n": "one"}), sequence(1))
    live = LiveTopic(spark, texts, Schemas({2: WIDER}, newest=2))
    sql(target, "create view {} as select n from {}", "v", "thing")
    with pytest.raises(RefusedError, match=r"column n of .* integer; .* text") as refused:
        rebuilt(target, live)
    assert "drop the object that uses the column" in refused.value.hint
    assert {row["n"] for row in target.rows()} == {1, 2, 3, 7}
    sql(target, "drop view {}", "v")
    assert rebuilt(target, live).records == 0
    assert target.state("n") == {"a": {"n": "one"}}


def test_rebuilds_a_table_with_a_different_mode_or_type(spark: SparkSession, target: Target) -> None:
    target.run(history(), SCHEMAS)
    texts, keys = Log("test.thing"), ("a", "b", "c", "gone", "poison", "d")
    for commit, key in enumerate(keys * 2, start=11):
        texts.append(key, framed(WIDER, 2, {"n": "one"}), sequence(commit))
    live = LiveTopic(spark, texts, Schemas({2: WIDER}, newest=2))
    other = target.in_mode(Mode.SOFT_DELETE)
    with pytest.raises(OutboxError) as refused:
        materialize(spark, other.job, print, topic=live.topic())
    assert "outbox-rebuild" in refused.value.hint
    rebuilt(other, live)
    assert other.state("n", "_deleted_at") == {key: {"n": "one", "_deleted_at": None} for key in keys}
    assert materialize(spark, other.job, print, topic=live.topic()).status is Status.UNCHANGED


def test_does_not_empty_a_foreign_iceberg_table(spark: SparkSession, iceberg_target: Target) -> None:
    target = iceberg_target
    assert isinstance(target.job.target, IcebergTarget)
    name = table_name(spark, target.job.target, "thing")
    spark.sql(f"CREATE NAMESPACE {name.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {name} (mine int) USING iceberg")
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    with pytest.raises(RefusedError, match="did not create"):
        rebuilt(target, LiveTopic(spark, history(), SCHEMAS))
    assert spark.table(name).collect()[0]["mine"] == 1


def test_rejects_a_history_with_different_keys(postgres_target: Target) -> None:
    postgres_target.run(history(), SCHEMAS)
    with pytest.raises(ConfigurationError, match="mode hard-delete") as refused:
        postgres_target.in_mode(Mode.HISTORY).run(history(), SCHEMAS)
    assert "drop the table" in refused.value.hint


def test_does_not_replace_foreign_tables(spark: SparkSession, postgres_target: Target) -> None:
    target = postgres_target
    assert isinstance(target.job.target, PostgresTarget)
    sql(target, f"create schema {target.job.target.schema}")
    sql(target, "create table {} (aggregate_id text)", "thing")
    with pytest.raises(RefusedError, match="did not create"):
        rebuilt(target, LiveTopic(spark, history(), SCHEMAS))
    assert target.rows() == []


@pytest.mark.parametrize("restart", [False, True])
def test_does_not_drop_a_foreign_table_with_the_name_of_the_shadow(
    spark: SparkSession, postgres_target: Target, restart: bool
) -> None:
    log = history()
    live = LiveTopic(spark, log, SCHEMAS)
    postgres_target.run(log, SCHEMAS)
    sql(postgres_target, "create table {} as select 1 as kept", "thing__rebuild")
    with pytest.raises(RefusedError, match="did not create it"):
        rebuilt(postgres_target, live, restart)
    assert sql(postgres_target, "select kept from {}", "thing__rebuild") == [(1,)]


def test_replaces_a_locked_table_later(spark: SparkSession, postgres_target: Target) -> None:
    live = LiveTopic(spark, history(), SCHEMAS)
    with postgres_target.open(), pytest.raises(OverlapError, match="another run has locked"):
        rebuilt(postgres_target, live)
    assert rebuilt(postgres_target, live).records == 0
    assert set(postgres_target.state()) == {"a", "b", "c", "d"}


@pytest.mark.long
@pytest.mark.parametrize("table_exists", [True, False])
def test_keeps_a_run_committed_during_the_last_step(
    spark: SparkSession, iceberg_target: Target, monkeypatch: pytest.MonkeyPatch, table_exists: bool
) -> None:
    """A catalog that is not of type hadoop has no folder for a lease file, so the commits must conflict."""
    monkeypatch.setattr(iceberg_module, "hadoop_warehouse", lambda _catalog: "")
    target = iceberg_target
    log = history()
    if table_exists:
        target.run(log, SCHEMAS)
    live, runs = LiveTopic(spark, log, SCHEMAS), 0

    def followed_by_a_run(*arguments: Any, **named: Any) -> Outcome:  # noqa: ANN401 - of materialize
        nonlocal runs
        done, runs = materialize(*arguments, **named), runs + 1
        if runs == 2:  # the one after which the shadow replaces the table
            put(log, "e", 8)
            replace(target, spark=active_session()).run(log, SCHEMAS)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(rebuild_module, "materialize", followed_by_a_run)
        with pytest.raises(OverlapError, match=r"committed to .*thing"):
            rebuilt(target, live)
    assert set(target.state()) == {"a", "b", "c", "d", "e"}
    committed = target.committed()
    assert committed is not None
    assert committed.offsets == log.end()
    assert rebuilt(target, live).records == 1
    assert set(target.state()) == {"a", "b", "c", "d", "e"}


def test_combines_the_outcomes_of_two_runs() -> None:
    first = Outcome("a", "t", "w", "a", Status.CHANGED, 10, 9, 8, 7, 6, 5, 4, 0.1, {0: 1}, {0: 11})
    later = Outcome("a", "t", "w", "a", Status.UNCHANGED, 1, 2, 3, 4, 5, 6, 7, 0.2, {0: 11}, {0: 12})
    total = Outcome("a", "t", "w", "a", Status.CHANGED, 11, 11, 11, 11, 11, 11, 11, 0.3, {0: 1}, {0: 12})
    assert first.plus(later) == total


def test_long_table_names_fit_the_staging_table(postgres_target: Target) -> None:
    names = {shadow_of(structs.replace(postgres_target.job, table=dead_letter * 45)).table for dead_letter in "ab"}
    assert len(names) == 2
    for name in names:
        assert name.endswith(rebuild_module.SHADOW_SUFFIX)
        PostgresTable(postgres_target.job.target, name)  # type: ignore[arg-type]
    assert shadow_of(postgres_target.job).table == "thing__rebuild"


def test_refuses_to_lose_most_rows(spark: SparkSession, target: Target) -> None:
    """A topic that was deleted and recreated contains only the states that were written since then."""
    log, recreated = Log("test.thing"), Log("test.thing", topic_id="recreated")
    for commit, key in enumerate("abcdefghij", start=1):
        put(log, key, commit)
    target.run(log, SCHEMAS)
    before = target.state()
    put(recreated, "a", 20)
    topic = LiveTopic(spark, recreated, SCHEMAS).topic()
    with pytest.raises(RefusedError, match="from 10 to 1 rows"):
        rebuild(spark, target.job, print, topic=topic, max_lost_percent=89)
    assert target.state() == before
    rebuild(spark, target.job, print, topic=topic, max_lost_percent=90)
    assert set(target.state()) == {"a"}


def test_refuses_the_table_of_another_topic(spark: SparkSession, target: Target) -> None:
    """The target can be that of another environment, whose topic has the same name."""
    log, other = Log("test.thing"), Log("test.thing", topic_id="other")
    put(log, "a", 1)
    target.run(log, SCHEMAS)
    before, names = target.state(), names_of(target)
    put(other, "a", 2)
    topic = LiveTopic(spark, other, SCHEMAS).topic()
    with pytest.raises(RefusedError, match="id other") as refused:
        rebuild(spark, target.job, print, topic=topic, new_topic=False)
    assert "--new-topic" in refused.value.hint
    assert (target.state(), names_of(target)) == (before, names)
    rebuild(spark, target.job, print, topic=LiveTopic(spark, log, SCHEMAS).topic(), new_topic=False)
    assert target.state().keys() == before.keys()


@pytest.mark.long
@pytest.mark.parametrize("name", ["iceberg_target", "delta_target"])
def test_refuses_the_table_of_another_topic_that_was_restored(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    log, other = Log("test.thing"), Log("test.thing", topic_id="other")
    for version in (1, 2):
        put(log, "a", version)
        target.run(log, SCHEMAS)
    restore_first_version(target)
    put(other, "a", 3)
    topic = LiveTopic(target.spark, other, SCHEMAS).topic()
    with pytest.raises(RefusedError, match="id other"):
        rebuild(target.spark, target.job, print, topic=topic, new_topic=False)
    rebuild(target.spark, target.job, print, topic=LiveTopic(target.spark, log, SCHEMAS).topic(), new_topic=False)
    assert target.state("n") == {"a": {"n": 2}}


def restore_first_version(target: Target) -> None:
    with target.open() as table:
        storage = table._storage
        if isinstance(table, IcebergTable):
            first = next(iter(storage.load().snapshots())).snapshotId()
            storage.load().manageSnapshots().rollbackTo(first).commit()
        else:
            target.spark.sql(f"RESTORE TABLE {storage.sql_name()} TO VERSION AS OF 0").collect()


def test_compares_the_topic_when_another_run_has_ended(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is locked when the rebuild begins, so its topic is compared before its content is replaced."""
    log, other = Log("test.thing"), Log("test.thing", topic_id="other")
    put(log, "a", 1)
    target.run(log, SCHEMAS)
    before = target.state()
    put(other, "a", 2)
    topic, opened = LiveTopic(target.spark, other, SCHEMAS).topic(), rebuild_module.open_table
    locked = [1, 2]  # the first two attempts to open the table itself

    def open_table(spark: SparkSession, job: MaterializeJob, report: Reporter = print) -> TargetTable:
        if job == target.job and locked:
            locked.pop()
            raise OverlapError("another run has locked the table")
        return opened(spark, job, report)

    monkeypatch.setattr(rebuild_module, "open_table", open_table)
    with pytest.raises(RefusedError, match="id other"):
        rebuild(target.spark, target.job, print, topic=topic, new_topic=False)
    assert not locked
    assert target.state() == before


def test_keeps_a_table_of_another_topic_with_the_name_of_the_shadow_table(target: Target) -> None:
    log, other = Log("test.thing"), Log("other.thing")
    put(log, "a", 1)
    target.run(log, SCHEMAS)
    foreign = replace(target, job=structs.replace(target.job, table=shadow_of(target.job).table, topic=other.topic))
    put(other, "b", 1)
    foreign.run(other, SCHEMAS)
    for restart in (False, True):
        with pytest.raises(ForeignTableError, match=r"other\.thing"):
            rebuild(
                target.spark, target.job, print, topic=LiveTopic(target.spark, log, SCHEMAS).topic(), restart=restart
            )
    assert set(foreign.state()) == {"b"}


@pytest.mark.parametrize("suffix", ["", "__rebuild"])
def test_keeps_files_in_the_folder_of_a_delta_table(delta_target: Target, suffix: str) -> None:
    log = Log("test.thing")
    put(log, "a", 1)
    assert isinstance(delta_target.job.target, DeltaTarget)
    folder = Path(delta_target.job.target.path) / f"thing{suffix}"
    folder.mkdir(parents=True)
    (folder / "part-00000.parquet").write_text("kept")
    if suffix:
        delta_target.run(log, SCHEMAS)
    topic = LiveTopic(delta_target.spark, log, SCHEMAS).topic()
    with pytest.raises(ForeignTableError, match=r"part-00000\.parquet"):
        rebuild(delta_target.spark, delta_target.job, print, topic=topic)
    if not suffix:
        with pytest.raises(ForeignTableError, match=r"part-00000\.parquet"):
            materialize(delta_target.spark, delta_target.job, print, topic=topic)
    assert (folder / "part-00000.parquet").read_text() == "kept"
    (folder / "part-00000.parquet").unlink()
    # A run that failed before its commit leaves such files.
    (folder / "part-00000-8f0c6a52-6a07-4d26-9f8b-0d6a5b1f6a11-c000.snappy.parquet").write_text("")
    assert rebuild(delta_target.spark, delta_target.job, print, topic=topic).upserts == 1


def test_keeps_files_in_the_folders_of_companion_tables(delta_target: Target) -> None:
    log = Log("test.thing")
    put(log, "a", 1)
    delta_target.run(log, SCHEMAS)
    assert isinstance(delta_target.job.target, DeltaTarget)
    file = Path(delta_target.job.target.path) / "thing__tombstones" / "mine.csv"
    file.parent.mkdir()
    file.write_text("kept")
    delete(log, "b", 2)
    with pytest.raises(ForeignTableError, match=r"mine\.csv"):
        delta_target.run(log, SCHEMAS)
    file.unlink()
    assert delta_target.run(log, SCHEMAS).tombstones == 1
