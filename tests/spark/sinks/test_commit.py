"""Rows and progress become visible together, even after crashes, with retried tasks and with concurrent runs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, sequence
from tests.spark.table_under_test import Target, staging_tables
from tests.spark.thing_records import SCHEMAS, CrashError, crash, put, two_part_log
from tests.variations import variations

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError, UnreachableError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, PostgresTarget
from outbox_spark.sinks import DeltaTable, PostgresTable, StagedRows
from outbox_spark.sinks.iceberg.catalog import table_name
from outbox_spark.sinks.lake.lease import Lease


@pytest.mark.parametrize("method", variations(["_merge", "_prepare_tables"]))
def test_crash_before_the_commit_does_not_change_postgres(
    postgres_target: Target, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    log, first = two_part_log()
    postgres_target.run(log, SCHEMAS, first)
    before = (postgres_target.rows(), postgres_target.committed())
    with monkeypatch.context() as patch:
        patch.setattr(PostgresTable, method, crash)
        with pytest.raises(CrashError):
            postgres_target.run(log, SCHEMAS)
    assert (postgres_target.rows(), postgres_target.committed()) == before
    assert postgres_target.rows("__tombstones") == postgres_target.rows("__quarantine") == []
    postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("n") == {"b": {"n": 4}, "c": {"n": 5}}
    assert staging_tables(postgres_target) == []


def test_crash_inside_the_transaction_does_not_change_postgres(
    postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first = two_part_log()
    postgres_target.run(log, SCHEMAS, first)
    before = (postgres_target.rows(), postgres_target.committed())
    merge = PostgresTable._merge

    def merge_and_crash(*arguments: object) -> None:
        merge(*arguments)  # type: ignore[arg-type]
        raise CrashError

    monkeypatch.setattr(PostgresTable, "_merge", merge_and_crash)
    with pytest.raises(CrashError):
        postgres_target.run(log, SCHEMAS)
    assert (postgres_target.rows(), postgres_target.committed()) == before


def test_crash_before_the_commit_does_not_change_delta(delta_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    log, first = two_part_log()
    delta_target.run(log, SCHEMAS, first)
    before = (delta_target.rows(), delta_target.committed())
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "_merge", crash)
        with pytest.raises(CrashError):
            delta_target.run(log, SCHEMAS)
    # The ledger and the quarantine are written before the table.
    assert (delta_target.rows(), delta_target.committed()) == before
    assert len(delta_target.rows("__quarantine")) == len(delta_target.rows("__tombstones")) == 1
    delta_target.run(log, SCHEMAS)
    assert delta_target.state("n") == {"b": {"n": 4}, "c": {"n": 5}}
    assert len(delta_target.rows("__quarantine")) == len(delta_target.rows("__tombstones")) == 1


def test_retried_task_that_stages_twice_changes_nothing(
    postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first = two_part_log()
    postgres_target.run(log, SCHEMAS, first)
    copy = PostgresTable._copy

    def copy_twice(*arguments: Any) -> object:  # noqa: ANN401 - as _copy has them
        copy(*arguments)
        return copy(*arguments)

    monkeypatch.setattr(PostgresTable, "_copy", copy_twice)
    outcome = postgres_target.run(log, SCHEMAS)
    assert (outcome.upserts, outcome.deletes, outcome.tombstones, outcome.quarantined) == (2, 1, 1, 1)
    assert postgres_target.state("n") == {"b": {"n": 4}, "c": {"n": 5}}


def test_does_not_commit_staged_rows_lost_by_the_server(
    postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that restarts after a crash empties unlogged tables."""
    log, first = two_part_log()
    log.append(None, b"no key", sequence(7))
    postgres_target.run(log, SCHEMAS, first)
    before = (postgres_target.rows(), postgres_target.committed())
    copy = PostgresTable._copy

    def copy_and_lose(table: PostgresTable, plan: object, name: Identifier) -> object:
        loaded = copy(table, plan, name)
        table._connection.execute(SQL("truncate {}").format(name))
        return loaded

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTable, "_copy", copy_and_lose)
        with pytest.raises(OutboxError, match="has 0 of 5 rows"):
            postgres_target.run(log, SCHEMAS)
    assert (postgres_target.rows(), postgres_target.committed()) == before
    assert postgres_target.rows("__tombstones") == postgres_target.rows("__quarantine") == []
    assert postgres_target.run(log, SCHEMAS).quarantined == 2


def test_does_not_commit_rows_staged_early_and_lost(postgres_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """All records of the batch are readable, so the rows are staged in the pass that reads them."""
    log = Log("test.thing")
    put(log, "a", 1)
    postgres_target.run(log, SCHEMAS)
    put(log, "a", 2)
    stage_early = PostgresTable.stage_early

    def send_and_lose(table: PostgresTable, *arguments: Any) -> StagedRows | None:  # noqa: ANN401 - as stage_early has them
        staged = stage_early(table, *arguments)
        assert staged is not None
        table._connection.execute(SQL("truncate {}").format(staged.location.name))
        return staged

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTable, "stage_early", send_and_lose)
        with pytest.raises(OutboxError, match="has 0 of 1 rows"):
            postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("n") == {"a": {"n": 1}}
    postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("n") == {"a": {"n": 2}}
    assert staging_tables(postgres_target) == []


def test_drops_only_staging_tables_of_the_job(postgres_target: Target) -> None:
    execute(postgres_target, "create schema {}")
    user_tables = {"thing__staging_prev", "thing__staging_0123abcd_old", "thing__staging_01234567"}
    for name in user_tables:
        execute(postgres_target, f"create table {{}}.{name} (id int)")
    for name in ("thing__staging_0123abcd", "thing__staging_0123abcx"):
        execute(postgres_target, f"create unlogged table {{}}.{name} (id int)")
    with postgres_target.open():
        pass
    assert set(staging_tables(postgres_target)) == user_tables | {"thing__staging_0123abcx"}


@pytest.mark.long  # test_lake.py tests the same for a rollback of an Iceberg table
def test_rejects_a_restored_delta_table(delta_target: Target, spark: SparkSession) -> None:
    log, first = two_part_log()
    delta_target.run(log, SCHEMAS, first)
    delta_target.run(log, SCHEMAS)
    assert isinstance(delta_target.job.target, DeltaTarget)
    spark.sql(f"RESTORE TABLE delta.`{delta_target.job.target.path}/thing` TO VERSION AS OF 0").collect()
    with pytest.raises(RefusedError, match="was restored") as caught:
        delta_target.committed()
    assert "outbox-rebuild" in caught.value.hint
    delta_target.replace_by_shadow(log, SCHEMAS)


def test_concurrent_runs_of_a_postgres_table_are_rejected(postgres_target: Target) -> None:
    with (
        postgres_target.open(),
        pytest.raises(RefusedError, match=r"another run has locked table .*thing"),
        postgres_target.open(),
    ):
        pass
    with postgres_target.open():
        pass


def test_superseded_run_does_not_commit(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has no lock, as if its lease had expired while the run was paused."""
    monkeypatch.setattr("outbox_spark.sinks.postgres.table.lock", lambda *_: None)
    monkeypatch.setattr(Lease, "acquire", lambda _: None)
    log, first = two_part_log()
    target.run(log, SCHEMAS, first)
    with target.open() as slow:
        committed = slow.committed()
        target.run(log, SCHEMAS)
        after = (target.rows(), target.committed())
        with pytest.raises(RefusedError, match="another run has committed"):
            target.apply(slow, committed, log.range_from(committed), log, SCHEMAS)
    assert (target.rows(), target.committed()) == after


@pytest.mark.long  # test_superseded_first_run_creates_no_iceberg_table tests the other kind of lake table
def test_superseded_first_run_does_not_change_the_ledger(delta_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "acquire", lambda _: None)
    log, _ = two_part_log()
    with delta_target.open() as slow:
        assert slow.committed() is None
        delta_target.run(log, SCHEMAS)
        with pytest.raises(RefusedError, match="another run has committed"):
            delta_target.apply(slow, None, log.range_from(None), log, SCHEMAS)
    put(log, "a", 1)  # a replay from before the deletion
    delta_target.run(log, SCHEMAS)
    assert delta_target.state("n") == {"b": {"n": 4}, "c": {"n": 5}}


@pytest.mark.long
def test_rebuilt_delta_table_ignores_its_old_ledger(delta_target: Target, spark: SparkSession) -> None:
    log, first = two_part_log()
    delta_target.run(log, SCHEMAS)
    drop(delta_target, spark)
    delta_target.run(log, SCHEMAS, first)  # as if the broker had lost the end of its log
    assert delta_target.state("n") == {"a": {"n": 1}, "b": {"n": 2}}
    assert delta_target.run(log, SCHEMAS).tombstones == 1


def test_rebuilds_a_dropped_table_from_the_start(target: Target, spark: SparkSession) -> None:
    log, _ = two_part_log()
    target.run(log, SCHEMAS)
    drop(target, spark)
    assert target.committed() is None
    target.run(log, SCHEMAS)
    assert target.state("n") == {"b": {"n": 4}, "c": {"n": 5}}


def test_does_not_change_a_foreign_table(target: Target, spark: SparkSession) -> None:
    create_foreign_table(target, spark)
    with pytest.raises(RefusedError, match="did not create"):
        target.committed()


def test_rejects_a_different_layout(postgres_target: Target) -> None:
    log, _ = two_part_log()
    postgres_target.run(log, SCHEMAS)
    execute(postgres_target, """update {}.outbox_offsets set progress = progress || '{"layout": 99}'""")
    with pytest.raises(RefusedError, match="layout version 99"):
        postgres_target.committed()


def test_reports_a_failing_statement(postgres_target: Target) -> None:
    log, first = two_part_log()
    postgres_target.run(log, SCHEMAS, first)
    execute(postgres_target, "alter table {}.thing add check (n < 3)")
    with pytest.raises(RefusedError, match=r"rejects rows of .*violates check constraint"):
        postgres_target.run(log, SCHEMAS)


def test_reports_an_unreachable_server_without_the_password() -> None:
    target = PostgresTarget("127.0.0.1", 1, "d", "u", "s3cret")
    with (
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1/d") as caught,
        PostgresTable(target, "thing"),
    ):
        pass
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(target)


def test_rejects_a_table_name_without_room_for_suffixes() -> None:
    with pytest.raises(ConfigurationError, match="is 60 characters long"):
        PostgresTable(PostgresTarget("h", 1, "d", "u", "p"), "t" * 60)


def execute(target: Target, statement: str) -> None:
    """Run a statement in which {} is replaced by the target's schema."""
    assert isinstance(target.job.target, PostgresTarget)
    assert target.dsn is not None
    with psycopg.connect(**target.dsn) as connection:
        connection.execute(statement.replace("{}", target.job.target.schema, 1).encode())


def drop(target: Target, spark: SparkSession) -> None:
    if isinstance(target.job.target, DeltaTarget):
        spark.sql(f"DROP TABLE delta.`{target.job.target.path}/thing`")
        remove(spark, f"{target.job.target.path}/thing")
    elif isinstance(target.job.target, IcebergTarget):
        spark.sql(f"DROP TABLE {table_name(spark, target.job.target, 'thing')} PURGE")
    else:
        execute(target, "drop table {}.thing")


def remove(spark: SparkSession, path: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    folder = jvm.org.apache.hadoop.fs.Path(path)
    folder.getFileSystem(spark._jsc.hadoopConfiguration()).delete(folder, True)


def create_foreign_table(target: Target, spark: SparkSession) -> None:
    if isinstance(target.job.target, DeltaTarget):
        spark.range(1).write.format("delta").save(f"{target.job.target.path}/thing")
    elif isinstance(target.job.target, IcebergTarget):
        name = table_name(spark, target.job.target, "thing")
        spark.sql(f"CREATE NAMESPACE {name.rsplit('.', 1)[0]}")
        spark.range(1).writeTo(name).using("iceberg").create()
    else:
        execute(target, "create schema {}")
        execute(target, "create table {}.thing (id int)")
