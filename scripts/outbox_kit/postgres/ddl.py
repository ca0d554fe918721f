"""DDL of the source database, which `apply` executes and `render` prints, and the INSERT of outbox rows."""

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
    """Return the quoted name of a table that is given as schema.table."""
    return sql.Identifier(*table.split("."))


def schema_of(table: str) -> sql.Identifier:
    """Return the quoted schema of a table that is given as schema.table."""
    return sql.Identifier(table.split(".", maxsplit=1)[0])


def create_schema(schema: sql.Identifier) -> sql.Composed:
    return sql.SQL("create schema if not exists {}").format(schema)


def create_table(pipeline: Pipeline) -> sql.Composed:
    """Return CREATE TABLE with the columns of docs/contract.md and the additional columns of the pipeline file.

    Additional columns are nullable, because aggregates that do not use such a column write no value to it.
    """
    source = pipeline.source
    names = source.columns.model_dump()
    fields = [aggregate.partition_field for aggregate in pipeline.aggregates.values() if aggregate.partition_field]
    additional = [
        name for name in dict.fromkeys([*fields, *source.additional_columns]) if name not in {*names.values(), "seq"}
    ]
    columns: dict[str, sql.Composable] = {key: sql.Identifier(name) for key, name in names.items()}
    columns["payload_type"] = sql.SQL(pipeline.payload_type)
    definitions = [sql.SQL(",\n  {} text").format(sql.Identifier(name)) for name in additional]
    return TABLE.format(table=qualified(source.table), **columns) + sql.SQL("").join(definitions) + sql.SQL(")")


def insertion(source: Source, rows: sql.Composable, *additional: str) -> sql.Composed:
    """Return INSERT of `rows`, VALUES or SELECT of id, aggregate type and id, event type, payload and `additional`."""
    columns = source.columns
    names = [columns.id, columns.aggregate_type, columns.aggregate_id, columns.event_type, columns.payload, *additional]
    return sql.SQL("insert into {outbox} ({names}) {rows}").format(
        outbox=qualified(source.table), names=sql.SQL(", ").join(map(sql.Identifier, names)), rows=rows
    )


def create_publication(source: Source) -> sql.Composed:
    """Return CREATE PUBLICATION for inserts into the outbox table, or for no table if events are logical messages."""
    if not source.uses_table:
        return sql.SQL("create publication {}").format(sql.Identifier(source.publication))
    text = sql.SQL("create publication {} for table {} with (publish = 'insert', publish_via_partition_root = true)")
    return text.format(sql.Identifier(source.publication), qualified(source.table))


def create_slot(name: str, *, failover: bool) -> sql.Composed:
    """Return the statement that creates a pgoutput slot, with `failover` a failover slot (PostgreSQL 17 and later)."""
    options = sql.SQL(", false, false, true" if failover else "")
    text = sql.SQL("select pg_create_logical_replication_slot({}, 'pgoutput'{})")
    return text.format(sql.Literal(name), options)


def grant_read(role: str, table: str) -> list[sql.Composed]:
    return [
        sql.SQL("grant usage on schema {} to {}").format(schema_of(table), sql.Identifier(role)),
        sql.SQL("grant select on {} to {}").format(qualified(table), sql.Identifier(role)),
    ]
