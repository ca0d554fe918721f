"""Build the DDL that `apply` executes and `render` prints, and the INSERT statement for outbox rows."""

from __future__ import annotations

import re
from textwrap import dedent

from psycopg import sql

from outbox_kit.pipeline import Environment, Pipeline, Source

MARK_PREFIX = "outbox-kit: "
MARK = re.compile(
    rf"{MARK_PREFIX}pipeline (?P<pipeline>\S+), environment (?P<environment>\S+), prefix \S+, slot \w+"
    r"(, cluster (?P<cluster>[\w-]+))?"
)
CREATE_TABLE = sql.SQL(
    dedent("""\
        create table {if_not_exists}{table} (
          {id} uuid primary key default gen_random_uuid(),
          seq bigint generated always as identity,
          {aggregate_type} text not null,
          {aggregate_id} text not null check ({aggregate_id} <> ''),
          {event_type} text not null,
          {payload} {payload_type},
          {headers} jsonb,
          {created_at} timestamptz not null default now()""")
)


def qualified_name(table: str) -> sql.Identifier:
    """Return the quoted name of a table that is given as schema.table."""
    return sql.Identifier(*table.split("."))


def quoted_text(table: str) -> str:
    """Return qualified_name() as text, for to_regclass() and for hints.

    The quotes are required, because PostgreSQL converts an unquoted name to lower case.
    """
    return qualified_name(table).as_string(None)


def schema_of(table: str) -> sql.Identifier:
    """Return the quoted name of the schema of a table that is given as schema.table."""
    return sql.Identifier(table.split(".", maxsplit=1)[0])


def create_schema(schema: sql.Identifier) -> sql.Composed:
    return sql.SQL("create schema if not exists {}").format(schema)


def create_table(pipeline: Pipeline, *, if_not_exists: bool = False) -> sql.Composed:
    """Return CREATE TABLE with the columns of docs/contract.md and the additional columns of the pipeline file.

    Additional columns are nullable, because the rows of other aggregate types do not have values for them.
    """
    source = pipeline.source
    names = source.columns.model_dump()
    candidates = dict.fromkeys([*pipeline.partition_fields.values(), *source.additional_columns])
    additional_columns = [name for name in candidates if name not in {*names.values(), "seq"}]
    columns: dict[str, sql.Composable] = {key: sql.Identifier(name) for key, name in names.items()}
    columns |= {"table": qualified_name(source.table), "payload_type": sql.SQL(pipeline.payload_type)}
    columns["if_not_exists"] = sql.SQL("if not exists " if if_not_exists else "")
    definitions = [sql.SQL(",\n  {} text").format(sql.Identifier(name)) for name in additional_columns]
    return CREATE_TABLE.format(**columns) + sql.SQL("").join(definitions) + sql.SQL(")")


def insertion(source: Source, rows: sql.Composable, *additional: str) -> sql.Composed:
    """Return an INSERT of `rows`, a VALUES list or SELECT whose columns are id to payload, followed by `additional`."""
    columns = source.columns
    names = [columns.id, columns.aggregate_type, columns.aggregate_id, columns.event_type, columns.payload, *additional]
    return sql.SQL("insert into {outbox} ({names}) {rows}").format(
        outbox=qualified_name(source.table), names=sql.SQL(", ").join(map(sql.Identifier, names)), rows=rows
    )


def create_publication(source: Source) -> sql.Composed:
    """Return CREATE PUBLICATION for inserts into the outbox table. For logical decoding messages, omit the table."""
    if not source.uses_table:
        return sql.SQL("create publication {}").format(sql.Identifier(source.publication))
    text = sql.SQL("create publication {} for table {} with (publish = 'insert', publish_via_partition_root = true)")
    return text.format(sql.Identifier(source.publication), qualified_name(source.table))


def alter_publication(source: Source) -> list[sql.Composed]:
    """Return the statements that give an existing publication the table and the options of create_publication()."""
    name = sql.Identifier(source.publication)
    return [
        sql.SQL("alter publication {} set table {}").format(name, qualified_name(source.table)),
        sql.SQL("alter publication {} set (publish = 'insert', publish_via_partition_root = true)").format(name),
    ]


def publication_mark(pipeline: Pipeline, environment: Environment, cluster_id: str | None) -> str:
    """Return the comment by which `apply` recognizes the publication and the slot of the pipeline.

    The Kafka cluster distinguishes environments with the same name, and copies of a server's files.
    """
    cluster = f", cluster {cluster_id}" if cluster_id else ""
    return f"{mark_of_names(pipeline, environment)} prefix {pipeline.prefix}, slot {pipeline.source.slot}{cluster}"


def mark_of_names(pipeline: Pipeline, environment: Environment) -> str:
    """Return the first part of the marks of a pipeline in an environment."""
    return f"{MARK_PREFIX}pipeline {pipeline.name}, environment {environment.name},"


def own_marks(pipeline: Pipeline, environment: Environment, cluster_id: str | None) -> list[str]:
    """Return the marks of this deployment. The SQL script for a DBA may not know the cluster."""
    return [publication_mark(pipeline, environment, known) for known in (None, cluster_id)]


def is_foreign_mark(comment: str | None, pipeline: Pipeline, environment: Environment, cluster_id: str | None) -> bool:
    """Return whether the comment begins with the mark of another pipeline, environment or cluster.

    Prefix and slot are ignored, because they can change. The mark of any cluster is foreign if `cluster_id` is None.
    """
    is_mark = MARK.match(comment or "") is not None
    return is_mark and not is_own_mark(comment, pipeline, environment, cluster_id)


def is_own_mark(comment: str | None, pipeline: Pipeline, environment: Environment, cluster_id: str | None) -> bool:
    """Return whether the comment begins with a mark of the pipeline, also with an earlier prefix or slot."""
    found = MARK.match(comment or "")
    if found is None or found["cluster"] not in (None, cluster_id):
        return False
    return (found["pipeline"], found["environment"]) == (pipeline.name, environment.name)


def mark_publication(publication: str, mark: str) -> sql.Composed:
    """Return the statement that sets publication_mark()."""
    return sql.SQL("comment on publication {} is {}").format(sql.Identifier(publication), sql.Literal(mark))


def replace_publication(source: Source) -> list[sql.Composed]:
    """Return the statements that replace the publication. The caller must execute them in one transaction.

    Otherwise, rows could be lost: logical decoding uses the publication that existed when the row was written.
    """
    return [sql.SQL("drop publication {}").format(sql.Identifier(source.publication)), create_publication(source)]


def create_slot(name: str, *, failover: bool) -> sql.Composed:
    """Return the statement that creates a pgoutput slot. `failover` requires PostgreSQL 17 or later."""
    arguments = sql.SQL(", false, false, true" if failover else "")
    statement = sql.SQL("select pg_create_logical_replication_slot({}, 'pgoutput'{})")
    return statement.format(sql.Literal(name), arguments)


def grant_read(role: str, table: str) -> list[sql.Composed]:
    return [
        sql.SQL("grant usage on schema {} to {}").format(schema_of(table), sql.Identifier(role)),
        sql.SQL("grant select on {} to {}").format(qualified_name(table), sql.Identifier(role)),
    ]
