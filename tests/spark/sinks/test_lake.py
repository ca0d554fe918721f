"""Lake formats: snapshots, comments, redacted catalog settings, and replacement in one commit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.damaged_rows import damage, sql_name
from tests.spark.job_files import CATALOG_SECRETS
from tests.spark.kafka_log import START, Log, Schemas, framed, sequence
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, THING, CrashError, delete, poison, put, two_part_log
from tests.variations import variations

from outbox_events.errors import RefusedError
from outbox_spark.commands.export import export
from outbox_spark.decoding.columns import columns_of
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, Mode
from outbox_spark.sinks import DeltaTable
from outbox_spark.sinks.iceberg.catalog import configure_catalog, table_name
from outbox_spark.sinks.iceberg.table import IcebergTable
from outbox_spark.sinks.lake.lease import Lease
from outbox_spark.sinks.lake.merge_sql import MergeStatement, literal, quoted
from outbox_spark.sinks.lake.quarantine import Quarantine
from outbox_spark.sinks.lake.table import LakeTable
from outbox_spark.sinks.lake.tombstone_ledger import Ledger


def iceberg(target: Target) -> IcebergTable:
    table = target.open()
    assert isinstance(table, IcebergTable)
    return table


def test_crash_before_the_fast_forward_does_not_change_iceberg(
    iceberg_target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log, first = two_part_log()
    iceberg_target.run(log, SCHEMAS, first)
    before = (iceberg_target.rows(), iceberg_target.committed())
    branch = IcebergTable._branch

    @contextmanager
    def branch_and_crash(table: IcebergTable, progress: dict[str, Any]) -> Iterator[str]:
        with branch(table, progress) as name:
            yield name
            raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "_branch", branch_and_crash)
        with pytest.raises(CrashError):
            iceberg_target.run(log, SCHEMAS)
    assert (iceberg_target.rows(), iceberg_target.committed()) == before
    # A driver that is killed leaves its branch behind.
    loaded = iceberg(iceberg_target)._storage.load()
    loaded.manageSnapshots().createBranch("outbox_dead", loaded.currentSnapshot().snapshotId()).commit()
    iceberg_target.run(log, SCHEMAS)
    assert iceberg_target.state("n") == {"b": {"n": 4}, "c": {"n": 5}}
    assert [len(iceberg_target.rows(suffix)) for suffix in ("__tombstones", "__quarantine")] == [1, 1]
    assert list(iceberg(iceberg_target)._storage.load().refs()) == ["main"]
    for _ in range(2):  # the second export replaces the first one
        export(iceberg_target.spark, iceberg_target.job, tmp_path)
    (file,) = (tmp_path / "target/thing").glob("*.json")
    assert sorted(json.loads(line)["n"] for line in file.read_text().splitlines()) == [4, 5]


@pytest.mark.parametrize("name", ["_delta_log/00000000000000000000.json", "notes.json", "part-numbers.json"])
def test_an_export_does_not_replace_other_files(delta_target: Target, tmp_path: Path, name: str) -> None:
    put(log := Log("test.thing"), "a", 1)
    delta_target.run(log, SCHEMAS)
    other = tmp_path / "target" / "thing" / name
    other.parent.mkdir(parents=True)
    other.touch()
    with pytest.raises(RefusedError, match="not an earlier export"):
        export(delta_target.spark, delta_target.job, tmp_path)
    assert other.exists()


def test_superseded_first_run_creates_no_iceberg_table(iceberg_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "acquire", lambda _: None)
    log, first = two_part_log()
    with iceberg_target.open() as slow:
        assert slow.committed() is None
        iceberg_target.run(log, SCHEMAS, first)
        after = (iceberg_target.rows(), iceberg_target.committed())
        with pytest.raises(OverlapError, match="another run has committed"):
            iceberg_target.apply(slow, None, log.range_from(None), log, SCHEMAS)
    assert (iceberg_target.rows(), iceberg_target.committed()) == after


def test_foreign_commits_keep_the_progress_and_a_rollback_is_rejected(
    iceberg_target: Target, spark: SparkSession
) -> None:
    log, first = two_part_log()
    iceberg_target.run(log, SCHEMAS, first)
    table = iceberg(iceberg_target)
    old = table._storage.load().currentSnapshot().snapshotId()
    committed = iceberg_target.committed()
    assert isinstance(iceberg_target.job.target, IcebergTarget)
    name = f"{iceberg_target.job.target.namespace}.thing"
    spark.sql(
        f"CALL {table._storage.catalog}.system.rewrite_data_files("
        f"table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()
    assert "outbox" not in dict(table._storage.load().currentSnapshot().summary())
    assert iceberg_target.committed() == committed
    assert iceberg_target.run(log, SCHEMAS).upserts == 2
    spark.sql(f"CALL {table._storage.catalog}.system.rollback_to_snapshot('{name}', {old})").collect()
    with pytest.raises(RefusedError, match="was rolled back") as caught:
        iceberg_target.committed()
    assert "outbox-rebuild" in caught.value.hint
    iceberg_target.replace_by_shadow(log, SCHEMAS)


def test_shadow_content_replaces_an_iceberg_table(iceberg_target: Target) -> None:
    log, first = two_part_log()
    iceberg_target.run(log, SCHEMAS, first)
    poison(log, "late", 7)
    wider = {**THING, "fields": [{"name": "n", "type": "long"}]}
    shadow = iceberg_target.shadow()
    log.append("d", framed(wider, 2, {"n": 2**40}), sequence(8))
    shadow.run(log, Schemas({1: THING, 2: wider}, newest=2))
    progress = shadow.committed()
    with iceberg_target.open() as table, shadow.open() as other:
        table.replace_by(other)
        assert {row["aggregate_id"] for row in table.current_versions().collect()} == {"b", "c", "d"}
    assert iceberg_target.committed() == progress
    assert iceberg_target.state("n")["d"] == {"n": 2**40}
    assert len(iceberg_target.rows("__quarantine")) == 2
    assert [shadow.rows(suffix) for suffix in ("", "__tombstones", "__quarantine")] == [[], [], []]
    put(log, "a", 1)  # from before its deletion, which only the shadow has read
    iceberg_target.run(log, Schemas({1: THING, 2: wider}, newest=2))
    assert "a" not in iceberg_target.state("n")
    with iceberg_target.open() as table:
        assert table.expire_ledger(START) == 0
        assert table.expire_ledger(START + timedelta(days=1)) == 1
        assert iceberg_target.rows("__tombstones") == []
        table.drop()
        assert table.committed() is None
    assert len(iceberg_target.rows("__quarantine")) == 2


@pytest.mark.long
def test_run_without_its_lease_replaces_nothing(delta_target: Target) -> None:
    log, first = two_part_log()
    delta_target.run(log, SCHEMAS, first)
    shadow = delta_target.shadow()
    shadow.run(log, SCHEMAS, first)
    with delta_target.open() as table, shadow.open() as other:
        assert isinstance(table, DeltaTable)
        assert table._lease is not None
        taker = Lease(delta_target.spark, table._lease.path, print, clock=lambda: time.time() + 3600)
        taker.acquire()
        table._lease.renew()
        with pytest.raises(OverlapError, match="was taken over by process"):
            table.replace_by(other)
        taker.release()
    assert set(delta_target.state()) == {"a", "b"}
    assert shadow.committed() is not None


def test_redacts_catalog_credentials_in_spark(spark: SparkSession) -> None:
    """The event log and the UI redact settings in the same way as SET."""
    secrets = CATALOG_SECRETS
    catalog = configure_catalog(spark, IcebergTarget("n", {"type": "rest", "io-impl": "x.Y", **secrets}))
    prefix = f"spark.sql.catalog.{catalog}"
    try:
        visible = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
        assert visible[f"{prefix}.io-impl"] == "x.Y"
        assert {name: visible[f"{prefix}.{name}"] for name in secrets} == dict.fromkeys(secrets, "*********(redacted)")
        assert spark.conf.get(f"{prefix}.credential") == secrets["credential"]
        assert logged(spark, f"{prefix}.credential") == "*********(redacted)"
    finally:
        application: Any = spark._jsc.sc().conf()
        for name in [prefix, *(f"{prefix}.{name}" for name in ("type", "io-impl", "cache-enabled", *secrets))]:
            application.remove(name)
            spark.conf.unset(name)


def logged(spark: SparkSession, name: str) -> str:
    """Return a setting of the session as it is in the event log, where each Spark job includes it."""
    jvm: Any = spark._jvm
    context = spark._jsc.sc()
    properties = jvm.java.util.Properties()
    properties.setProperty(name, spark.conf.get(name))
    no_attempt, folder = jvm.scala.Option.empty(), jvm.java.net.URI("file:/tmp")
    log = jvm.org.apache.spark.scheduler.EventLoggingListener
    listener = log("an-application", no_attempt, folder, context.conf(), context.hadoopConfiguration())
    return str(listener.redactProperties(properties).getProperty(name))


def test_keeps_the_default_redaction_of_spark(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    package = getattr(jvm.org.apache.spark.internal.config, "package$")
    default = getattr(package, "MODULE$").SECRET_REDACTION_PATTERN().defaultValueString()
    assert str(spark.sparkContext.getConf().get("spark.redaction.regex")).startswith(f"{default}|")


@pytest.mark.parametrize("name", ["delta_target", pytest.param("iceberg_target", marks=pytest.mark.long)])
def test_writes_field_docs_as_comments(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)

    def documented(number: int, *more: str) -> dict[str, Any]:
        fields = [{"name": "n", "type": "int", "doc": f"it's ${{number}} {number}"}]
        fields += [{"name": m, "type": ["null", "int"], "default": None, "doc": f"\\{m}"} for m in more]
        return {**THING, "fields": fields}

    log = Log("test.thing")
    put(log, "a", 1)
    target.run(log, Schemas({1: documented(1)}, newest=1))
    assert comments(target) == {"n": "it's ${number} 1"}
    put(log, "a", 2)
    target.run(log, Schemas({1: THING, 2: documented(2, "extra")}, newest=2))
    assert comments(target) == {"n": "it's ${number} 2", "extra": "\\extra"}
    assert target.state("n", "extra") == {"a": {"n": 2, "extra": None}}


def comments(target: Target) -> dict[str, str]:
    if isinstance(target.job.target, IcebergTarget):
        frame = target.spark.table(table_name(target.spark, target.job.target, "thing"))
    else:
        assert isinstance(target.job.target, DeltaTarget)
        frame = target.spark.read.format("delta").load(f"{target.job.target.path}/thing")
    return {field.name: field.metadata["comment"] for field in frame.schema.fields if "comment" in field.metadata}


@pytest.mark.parametrize("name", ["delta_target", pytest.param("iceberg_target", marks=pytest.mark.long)])
def test_keeps_columns_that_were_added_by_hand(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    fields = [{"name": "n", "type": "int"}, {"name": "Removed", "type": "int", "default": 0}]
    wider = {**THING, "fields": fields}
    log, schemas = Log("test.thing"), Schemas({1: THING, 2: wider}, newest=2)
    log.append("a", framed(wider, 2, {"n": 1, "Removed": 1}), sequence(1))
    target.run(log, schemas)
    target.spark.sql(f"ALTER TABLE {sql_name(target)} ADD COLUMNS (by_hand STRING)").collect()
    schemas.newest = 1
    for commit in (2, 3):  # the progress of the second run lists the field among those of earlier schemas
        damage(target, "a", removed=7, by_hand=f"mine {commit}")
        put(log, "a", commit)
        target.run(log, schemas)
        assert target.state("n", "Removed", "by_hand") == {
            "a": {"n": commit, "Removed": None, "by_hand": f"mine {commit}"}
        }


@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_a_batch_leaves_no_key_filter_settings_or_rows_behind(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    spark, log = target.spark, Log("test.thing")

    def state() -> tuple[object, ...]:
        settings = {key: value for key, value in spark.conf.getAll.items() if "lastCommitVersion" not in key}
        # Delta keeps the states of tables.
        stored = spark.sparkContext._jsc.getPersistentRDDs().size() if name == "iceberg_target" else 0
        return settings, spark.sql("SHOW USER FUNCTIONS").collect(), stored

    before: tuple[object, ...] = ()
    for commit in (1, 2, 3):
        put(log, "a", commit)
        (delete if commit == 2 else put)(log, "b", commit)
        target.run(log, SCHEMAS)
        before = before or state()  # after the first batch, which creates the table
    assert target.state("n") == {"a": {"n": 3}, "b": {"n": 3}}
    assert state() == before
    table = target.open()
    if isinstance(table, DeltaTable):
        predicates = [commit.get("operationParameters", {}).get("predicate", "") for commit in table._storage.commits()]
        assert "xxhash64" in "".join(predicates)
        assert "0x" not in "".join(predicates)  # the bytes of the filter


@pytest.mark.parametrize("name", variations(["iceberg_target", "delta_target"]))
def test_only_a_batch_with_old_events_is_joined_with_the_ledger(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target: Target = request.getfixturevalue(name)
    joins, log, mark = [], Log("test.thing"), Ledger.mark_superseded

    def counted(ledger: Ledger, rows: DataFrame, may_contain: str | None) -> DataFrame:
        joins.append(may_contain)
        return mark(ledger, rows, may_contain)

    def run() -> int:
        joins.clear()
        target.run(log, SCHEMAS)
        return len(joins)

    monkeypatch.setattr(Ledger, "mark_superseded", counted)
    put(log, "a", 1)
    put(log, "b", 2)
    delete(log, "b", 3)
    assert run() == 0
    put(log, "a", 4)
    delete(log, "c", 5)
    assert run() == 0
    put(log, "b", 2)  # the connector sends an event again
    assert run() == 1
    assert target.state("n") == {"a": {"n": 4}}
    target.open().maintain()  # changes the version of the ledger's table
    put(log, "c", 4)
    delete(log, "a", 6)
    assert run() == 1
    put(log, "b", 7)
    assert run() == 0
    assert target.state("n") == {"b": {"n": 7}}


@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_only_a_batch_that_the_quarantine_can_affect_reads_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target: Target = request.getfixturevalue(name)
    reads, log, newest_versions = [], Log("test.thing"), Quarantine.newest_versions

    def counted(quarantine: Quarantine, topic_id: str) -> DataFrame | None:
        reads.append(topic_id)
        return newest_versions(quarantine, topic_id)

    def run() -> int:
        reads.clear()
        target.run(log, SCHEMAS)
        return len(reads)

    monkeypatch.setattr(Quarantine, "newest_versions", counted)
    put(log, "a", 1)
    put(log, "b", 2)
    assert run() == 0
    poison(log, "b", 5)
    assert run() == 1
    put(log, "a", 6)
    assert run() == 0
    put(log, "b", 3)  # older than the record in the quarantine
    assert run() == 1
    assert target.state("n", "_stale") == {"a": {"n": 6, "_stale": False}, "b": {"n": 3, "_stale": True}}
    target.open().maintain()  # changes the version of the quarantine's table
    put(log, "b", 7)
    assert run() == 0
    assert target.state("n", "_stale") == {"a": {"n": 6, "_stale": False}, "b": {"n": 7, "_stale": False}}


@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_a_batch_with_quarantined_records_reads_only_rows_with_their_keys(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target: Target = request.getfixturevalue(name)
    filters, log, execute = [], Log("test.thing"), LakeTable._execute_merge

    def recorded(table: LakeTable, merge: MergeStatement, *arguments: Any) -> object:  # noqa: ANN401 - of the method
        filters.append(merge.key_filter)
        return execute(table, merge, *arguments)

    monkeypatch.setattr(LakeTable, "_execute_merge", recorded)
    for commit, key in enumerate("abc", start=1):
        put(log, key, commit)
    target.run(log, SCHEMAS)
    poison(log, "a", 5)
    target.run(log, SCHEMAS)
    poison(log, "b", 6)
    put(log, "c", 7)
    target.run(log, SCHEMAS)
    assert None not in filters
    states = {"a": {"n": 1, "_stale": True}, "b": {"n": 2, "_stale": True}, "c": {"n": 7, "_stale": False}}
    assert target.state("n", "_stale") == states


@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_a_run_that_fails_after_the_ledger_leaves_one_entry_for_each_tombstone(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target: Target = request.getfixturevalue(name)
    log = Log("test.thing")
    for commit, key in enumerate("abc", start=1):
        put(log, key, commit)
    delete(log, "a", 4)
    target.run(log, SCHEMAS)
    delete(log, "b", 5)
    crash_before_the_commit(target, log, monkeypatch)
    delete(log, "c", 6)
    target.run(log, SCHEMAS)
    assert target.state("n") == {}
    assert sorted(row["aggregate_id"] for row in target.rows("__tombstones")) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_finds_the_entries_that_an_overlapping_run_has_added(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Runs can overlap without a lease. The other run fails after it has written its entries for `b` and `c`."""
    monkeypatch.setattr(Lease, "acquire", lambda _: None)
    target: Target = request.getfixturevalue(name)
    log, append = Log("test.thing"), Ledger._append
    for commit, key in enumerate("abc", start=1):
        put(log, key, commit)
    delete(log, "a", 4)
    target.run(log, SCHEMAS)
    delete(log, "b", 5)
    with target.open() as slow:
        committed = slow.committed()
        first = log.range_from(committed)
        delete(log, "c", 6)

        def append_after_the_other_run(ledger: Ledger, entries: DataFrame) -> int:
            monkeypatch.setattr(Ledger, "_append", append)
            crash_before_the_commit(target, log, monkeypatch)
            return append(ledger, entries)

        monkeypatch.setattr(Ledger, "_append", append_after_the_other_run)
        target.apply(slow, committed, first, log, SCHEMAS)
    target.run(log, SCHEMAS)
    assert target.state("n") == {}
    keys = [row["aggregate_id"] for row in target.rows("__tombstones")]
    assert (keys.count("a"), keys.count("c")) == (1, 1)


def crash_before_the_commit(target: Target, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the target until it has written its ledger."""

    def crash(*_: object) -> None:
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(type(target.open()), "_commit_merge", crash)
        with pytest.raises(CrashError):
            target.run(log, SCHEMAS)


@pytest.mark.parametrize("name", variations(["iceberg_target", "delta_target"]))
def test_later_batches_compile_no_code(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    log, compilations = Log("test.thing"), []
    jvm: Any = target.spark._jvm
    counter = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    for commit in range(1, 8):
        before = counter.getCount()
        put(log, "a", commit)
        (delete if commit % 2 else put)(log, "b", commit)
        target.run(log, SCHEMAS)
        compilations.append(counter.getCount() - before)
    assert compilations[-2:] == [0, 0], compilations


def test_column_has_the_doc_of_its_field() -> None:
    schema = {**THING, "fields": [{"name": "n", "type": "int", "doc": "a number"}, {"name": "m", "type": "int"}]}
    assert [column.doc for column in columns_of(json.dumps(schema), "thing-value")] == ["a number", ""]


def test_quotes_names_and_texts_in_sql() -> None:
    assert quoted("a`b") == "`a``b`"
    assert literal("it's a \\ and ${x}") == "'it\\'s a \\\\ and \\u0024{x}'"
    sql = MergeStatement(Mode.HARD_DELETE, ["aggregate_id", "gr`een"], removed=["old"]).sql("t_1", "s_1")
    assert "`gr``een` = s.`gr``een`, `old` = null" in sql
    assert "__outbox_quarantined" not in sql
    assert "BY SOURCE" not in sql
