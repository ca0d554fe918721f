"""A table that was damaged outside of outbox-materialize fails at once, and the printed command repairs the table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec import structs
from psycopg.sql import SQL, Identifier
from tests.spark.damaged_rows import sql_name
from tests.spark.kafka_log import Log
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, delete, poison, put
from tests.variations import variations

from outbox_events.errors import OutboxError
from outbox_spark.commands.rebuild import rebuild
from outbox_spark.jobs.model import Outcome
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.session.error_redaction import redacted

IN_POSTGRES = {
    "thing__tombstones": "drop table {}.thing__tombstones",
    "thing__quarantine": "drop table {}.thing__quarantine",
    "columns that outbox-materialize had created: n": "alter table {}.thing drop column n",
    "columns that outbox-materialize had created: _offset": "alter table {}.thing drop column _offset",
    '"_offset" of relation "thing__tombstones"': "alter table {}.thing__tombstones drop column _offset",
}


@pytest.fixture
def log() -> Log:
    log = Log("test.thing")
    for commit, key in enumerate(("a", "b", "gone"), start=1):
        put(log, key, commit)
    delete(log, "gone", 5)
    poison(log, "poison", 6)
    return log


def run(target: Target, log: Log) -> Outcome:
    return materialize(target.spark, target.job, lambda _: None, topic=LiveTopic(target.spark, log, SCHEMAS).topic())


def fails_until_rebuilt(target: Target, log: Log, message: str) -> None:
    put(log, "a", 11)
    delete(log, "b", 12)
    poison(log, "poison", 13)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark, for example
        run(target, log)
    error: OutboxError = redacted(caught.value)  # type: ignore[arg-type]
    assert (error.transient, message in error.message) == (False, True), error.message
    assert "`outbox-rebuild`" in error.hint
    # The records of the log are older than the default retention of the ledger.
    options = structs.replace(target.job.options, tombstone_ttl=3650 * 86400)
    job = structs.replace(target.job, options=options)
    rebuild(target.spark, job, lambda _: None, topic=LiveTopic(target.spark, log, SCHEMAS).topic())
    put(log, "gone", 4)  # a replayed record
    put(log, "c", 14)
    run(target, log)
    assert target.state("n") == {"a": {"n": 11}, "c": {"n": 14}}


@pytest.mark.parametrize("message", IN_POSTGRES)
def test_repairs_a_postgres_table(postgres_target: Target, log: Log, message: str) -> None:
    run(postgres_target, log)
    execute(postgres_target, IN_POSTGRES[message])
    fails_until_rebuilt(postgres_target, log, message)


def test_names_a_missing_primary_key(postgres_target: Target, log: Log) -> None:
    run(postgres_target, log)
    execute(postgres_target, "alter table {}.thing drop constraint thing_pkey")
    put(log, "a", 11)
    with pytest.raises(OutboxError, match="ON CONFLICT") as caught:
        run(postgres_target, log)
    assert (caught.value.transient, "drop the table" in caught.value.hint) == (False, True)


def lake_folder(target: Target, suffix: str = "") -> Path:
    settings = target.job.target
    base = getattr(settings, "path", None) or f"{settings.catalog['warehouse']}/{settings.namespace}"  # type: ignore[union-attr]
    return Path(base) / f"thing{suffix}"


def without_files(target: Target) -> str:
    for file in lake_folder(target).rglob("*.parquet"):
        file.unlink()
    return ".parquet of the table is missing"


def without_companion(suffix: str) -> Callable[[Target], str]:
    def drop(target: Target) -> str:
        shutil.rmtree(lake_folder(target, suffix))
        return f"thing{suffix} is missing"

    return drop


def without_column(target: Target) -> str:
    name = sql_name(target)
    if name.startswith("delta"):
        properties = (
            "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
        )
        target.spark.sql(f"alter table {name} set tblproperties ({properties})")
    target.spark.sql(f"alter table {name} drop column n")
    return "columns that outbox-materialize had created: n"


IN_LAKES = {
    "files": without_files,
    "ledger": without_companion("__tombstones"),
    "quarantine": without_companion("__quarantine"),
    "column": without_column,
}


@pytest.mark.parametrize(
    ("kind", "damage"), variations([(kind, damage) for kind in ("iceberg", "delta") for damage in IN_LAKES])
)
def test_repairs_a_lake_table(request: pytest.FixtureRequest, log: Log, kind: str, damage: str) -> None:
    target: Target = request.getfixturevalue(f"{kind}_target")
    run(target, log)
    fails_until_rebuilt(target, log, IN_LAKES[damage](target))


def execute(target: Target, statement: str) -> None:
    """Run a statement in which {} is replaced by the target's schema."""
    assert target.dsn is not None
    with psycopg.connect(**target.dsn) as connection:
        connection.execute(SQL(statement).format(Identifier(target.job.target.schema)))  # type: ignore[arg-type, union-attr]
