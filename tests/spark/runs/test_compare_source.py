"""Comparison of a table with the source table of its aggregates. Pending changes are not differences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.spark.damaged_rows import damage
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.table_under_test import Target

from outbox_events.errors import ConfigurationError
from outbox_spark.jobs.from_pipeline import load_sources
from outbox_spark.jobs.model import PostgresTarget, SourceTable
from outbox_spark.runs import compare_source
from outbox_spark.runs.compare_source import SourceDifferences, compare_with_source, wait_confirmed
from outbox_spark.session.run_session import active_session

THING = {
    "type": "record",
    "name": "Thing",
    "fields": [{"name": "n", "type": "int"}, {"name": "tags", "type": {"type": "array", "items": "string"}}],
}
SCHEMAS = Schemas({1: THING}, newest=1)
PIPELINE = Path(__file__).resolve().parents[3] / "connectors" / "library.yaml"


@pytest.fixture
def source(postgres: psycopg.conninfo.ConninfoDict) -> SourceTable:
    with psycopg.connect(**postgres) as connection:
        connection.execute("drop table if exists public.thing")
        connection.execute("create table public.thing (id int primary key, n int, tags text[] default '{a,b}')")
    return SourceTable(
        server=PostgresTarget(
            host=str(postgres["host"]),
            port=int(str(postgres["port"])),
            database=str(postgres["dbname"]),
            user=str(postgres["user"]),
            password=str(postgres["password"]),
        ),
        table="public.thing",
        key="t.id::text",
        slot="thing",
        query=(
            "select id::text as aggregate_id, jsonb_build_object('n', n, 'tags', tags) as payload from public.thing "
            "where id = any(array(select id from public.thing)) and not to_jsonb(tags) ? 'no state?' -- done?"
        ),
    )


class Pipeline:
    """A source table, and a log to which its changes are appended."""

    def __init__(self, target: Target, dsn: psycopg.conninfo.ConninfoDict) -> None:
        self.target, self._dsn, self.log, self._commit = target, dsn, Log("test.thing"), 0

    def change(self, statement: str, key: int | None = None, *, n: int | None = None) -> None:
        """Change the source, and append the change of `key` to the log unless it is None."""
        with psycopg.connect(**self._dsn) as connection:
            connection.execute(statement)  # type: ignore[call-overload]
        if key is not None:
            self._commit += 1
            value = None if n is None else framed(THING, 1, {"n": n, "tags": ["a", "b"]})
            self.log.append(str(key), value, sequence(self._commit))

    def insert(self, key: int, *, published: bool = True) -> None:
        self.change(f"insert into public.thing values ({key}, 0)", key if published else None, n=0)

    def delete(self, key: int, *, published: bool = True) -> None:
        self.change(f"delete from public.thing where id = {key}", key if published else None)

    def run(self) -> None:
        replace(self.target, spark=active_session()).run(self.log, SCHEMAS)  # compare_with_source has its own


def compared(pipeline: Pipeline, source: SourceTable, meanwhile: Callable[[], None]) -> SourceDifferences:
    def catch_up(*_: object) -> None:
        pipeline.run()
        meanwhile()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_source, "catch_up", catch_up)
        return compare_with_source(pipeline.target.spark, pipeline.target.job, source, lambda _: None, 9, SCHEMAS)  # type: ignore[arg-type]


def test_pending_changes_are_not_differences(
    target: Target, postgres: psycopg.conninfo.ConninfoDict, source: SourceTable
) -> None:
    pipeline = Pipeline(target, postgres)
    for key in (1, 2, 3, 4, 5):
        pipeline.insert(key)
    pipeline.run()
    pipeline.insert(10, published=False)  # never published
    pipeline.delete(1, published=False)  # never published
    pipeline.insert(11)  # pending
    pipeline.delete(2)  # pending
    pipeline.insert(12, published=False)

    def meanwhile() -> None:
        # These keys differ in the second snapshot, but not in the same way as in the first.
        pipeline.delete(12, published=False)
        pipeline.insert(12, published=False)
        pipeline.insert(13)
        pipeline.delete(3)

    actual = compared(pipeline, source, meanwhile)
    assert (actual.counts, actual.candidate_count) == ({"missing": 1, "extra": 1}, 5)
    assert actual.examples == {"missing": ["10"], "extra": ["1"]}


def test_does_not_recheck_equal_keys(
    target: Target, postgres: psycopg.conninfo.ConninfoDict, source: SourceTable
) -> None:
    pipeline = Pipeline(target, postgres)
    pipeline.insert(1)
    pipeline.run()

    def unexpected() -> None:
        pytest.fail("compared again")

    assert compared(pipeline, source, unexpected) == SourceDifferences(uncompared=[])


def test_values_differ_only_if_table_and_source_are_unchanged(
    postgres_target: Target, postgres: psycopg.conninfo.ConninfoDict, source: SourceTable
) -> None:
    pipeline = Pipeline(postgres_target, postgres)
    for key in range(1, 10):
        pipeline.insert(key)
    pipeline.run()
    damage(pipeline.target, "1", n=99)
    pipeline.change("update public.thing set tags = '{b,a}' where id = 2")  # never published
    pipeline.change("update public.thing set n = 3 where id = 3", 3, n=3)  # pending
    pipeline.change("update public.thing set n = 4 where id = 4")  # published later
    pipeline.change("update public.thing set n = 5 where id = 5")  # changed again
    pipeline.change("update public.thing set n = null where id = 6")  # not valid for the schema
    pipeline.change("update public.thing set tags = '{no state?}' where id = 7")
    pipeline.change("insert into public.thing values (10, 0, '{no state?}')")

    def meanwhile() -> None:
        pipeline.change("update public.thing set n = 6 where id = 5")
        pipeline.change("update public.thing set n = 8 where id = 8")
        pipeline.log.append("4", framed(THING, 1, {"n": 4, "tags": ["a", "b"]}), sequence(100))
        pipeline.run()

    actual = compared(pipeline, source, meanwhile)
    assert actual.examples == {"different": ["1", "2"], "unreadable": ["6"]}
    assert actual.column_counts == {"n": 1, "tags": 1}
    assert actual.candidate_count == 6


def test_reports_unknown_connector_state_without_a_slot(source: SourceTable) -> None:
    with pytest.raises(ConfigurationError, match="slot thing does not exist"):
        wait_confirmed(source)


def test_source_is_read_from_the_files(tmp_path: Path) -> None:
    connectors = tmp_path / "connectors"
    (connectors / "environments").mkdir(parents=True)
    (connectors / "library.yaml").write_text(PIPELINE.read_text())
    environment = (PIPELINE.parent / "environments" / "local.yaml").read_text()
    values = {"postgres_port": "5433", "registry": "http://registry", "connect": "http://connect"}
    environment = re.sub(r'"\{\{ stack\.(\w+) \}\}"', lambda name: values.get(name[1], name[1]), environment)
    (connectors / "environments" / "local.yaml").write_text(environment)
    sources = load_sources(connectors / "library.yaml", "local", {"book"})
    book = sources["book"]
    assert book.query.endswith('from library.book where id = any(array(select "id" from "library"."book"))')
    assert replace(book, query="") == SourceTable(
        PostgresTarget("postgres_host", 5433, "source_database", "admin_user", "admin_password"),
        "library.book",
        '"t"."id"::text',
        "library_outbox",
    )
    assert "admin_password" not in repr(book)
    text = (connectors / "library.yaml").read_text()
    changed = text.replace("key: id", "key: [id, title]").replace("= any(:keys)", "in (select id from (:keys) k)")
    (connectors / "library.yaml").write_text(changed)
    book = load_sources(connectors / "library.yaml", "local", {"book"})["book"]
    assert book.key.count('"t".') == 2
    assert book.query.startswith('select replace(replace("q"."id"::text, ')
    assert '(select "id", "title" from "library"."book")' in book.query
    with pytest.raises(ConfigurationError, match="no selected aggregate type has `backfill`"):
        load_sources(connectors / "library.yaml", "local", {"other"})
