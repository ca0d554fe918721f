"""The statements that make the database objects: run by `apply`, and printed for a DBA by `render`."""

from __future__ import annotations

from textwrap import dedent

from psycopg import sql

from outbox_kit.pipeline import Pipeline, Source

TABLE = sql.SQL(
    dedent("""\
        create table {table} (
          {id} uuid primary key default gen_random_uuid(),
          seq bigint generated always as identity,
          {aggregate_type} text not null,
          {aggregate_id} text not null check ({aggregate_id} <> ''),
          {event_type} text not null,
          {payload} {payload_type},
          {headers} jsonb,
          {created_at} timestamptz not null default now()""")
)


def qualified(table: str) -> sql.Identifier:
    """schema.table as an identifier."""
    return sql.Identifier(*table.split("."))


def schema_of(table: str) -> sql.Identifier:
    """The schema of schema.table."""
    return sql.Identifier(table.split(".", maxsplit=1)[0])


def create_schema(schema: sql.Identifier) -> sql.Composed:
    """A schema, where it is missing."""
    return sql.SQL("create schema if not exists {}").format(schema)


def create_table(pipeline: Pipeline) -> sql.Composed:
    """The outbox table after docs/contract.md, and the further columns that the pipeline file names.

    Those may be null: rows of the aggregates that do not need them, the canary's first of all, leave them out.
    """
    source = pipeline.source
    names = source.columns.model_dump()
    fields = [entry.partition_field for entry in pipeline.aggregates.values() if entry.partition_field]
    there = {*names.values(), "seq"}
    further = [field for field in dict.fromkeys([*fields, *source.further_columns]) if field not in there]
    more = [sql.SQL(",\n  {} text").format(sql.Identifier(field)) for field in further]
    columns: dict[str, sql.Composable] = {key: sql.Identifier(value) for key, value in names.items()}
    columns["payload_type"] = sql.SQL(pipeline.payload_type)
    return TABLE.format(table=qualified(source.table), **columns) + sql.SQL("").join(more) + sql.SQL(")")


def create_publication(source: Source) -> sql.Composed:
    """Inserts only: updates and deletes of outbox rows never cross the wire. Of no table where messages are sent."""
    if not source.uses_table:
        return sql.SQL("create publication {}").format(sql.Identifier(source.publication))
    text = sql.SQL("create publication {} for table {} with (publish = 'insert', publish_via_partition_root = true)")
    return text.format(sql.Identifier(source.publication), qualified(source.table))


def create_slot(name: str, *, failover: bool) -> sql.Composed:
    """A pgoutput slot; `failover` (PostgreSQL 17 and later) lets standbys keep a copy."""
    more = sql.SQL(", false, false, true" if failover else "")
    text = sql.SQL("select pg_create_logical_replication_slot({}, 'pgoutput'{})")
    return text.format(sql.Literal(name), more)


def grant_read(role: str, table: str) -> list[sql.Composed]:
    """What the connector's role needs of the table."""
    return [
        sql.SQL("grant usage on schema {} to {}").format(schema_of(table), sql.Identifier(role)),
        sql.SQL("grant select on {} to {}").format(qualified(table), sql.Identifier(role)),
    ]
