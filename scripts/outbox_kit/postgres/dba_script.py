"""Render the SQL scripts with which a DBA creates a deployment's database objects and roles, and grants privileges."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import LiteralString

from psycopg import sql

from outbox_common.error_text import one_line
from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Pipeline, PostgresTarget
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import SLOT_TIMEOUT_MS
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE

HEAD = """\
-- Database objects and roles of {subject} in environment {environment}.
-- Run this script as a superuser. It can be run again. It contains no passwords: set the password of each new role with
-- \\password ROLE. Each statement is a transaction, because a slot cannot be created after a write.
--   psql --set ON_ERROR_STOP=1 --dbname {database} --file THIS_FILE"""
SOURCE_HEAD = """\
-- On Amazon RDS and Aurora, omit `replication` from ALTER ROLE; grant rds_replication to the owner and the connector.
-- If EXECUTE on pg_control_system() was revoked from PUBLIC, grant it to the owner and the verifier.
-- `outbox apply` uses the same statements, so `outbox plan` does not show changes to PostgreSQL afterwards.
-- For target tables in PostgreSQL: outbox render --format sql --target NAME"""
CHECK_DATABASE = """begin
  if current_database() <> {database} then
    raise exception 'this script is for database %, but the current database is %', {database}, current_database();
  end if;
end"""
CHECK_MARK = """begin
  if exists (
    select from pg_publication where pubname = {publication} and obj_description(oid, 'pg_publication') like {any_mark}
      and not starts_with(obj_description(oid, 'pg_publication'), {own_mark})
  ) then
    raise exception 'publication % belongs to another pipeline or environment', {publication}
      using hint = 'run this script in its own database, or set another source.publication and source.slot';
  end if;
end"""
WAL_LEVEL = "-- Logical decoding requires wal_level = logical, which takes effect after a restart of the server."
CHECK_WAL_LEVEL = """begin
  if current_setting('wal_level') <> 'logical' then
    raise exception 'wal_level is %, not logical', current_setting('wal_level')
      using hint = 'run ALTER SYSTEM SET wal_level = logical, restart the server, then run this script again';
  end if;
end"""
OWNER = """\
-- Owner: login of `outbox apply`. It owns the table and the publication. REPLICATION and CREATE on the database allow
-- it to create the slot and the publication again (`outbox recover`, or `outbox apply` after `outbox destroy`);
-- pg_read_all_stats allows it to report sessions that delay the creation of a slot."""
TABLE = """\
-- Outbox table. Grant the services' role only INSERT on the table and USAGE on its schema.
-- If the services delete their rows in the same transaction, grant DELETE as well."""
NO_TABLE = """\
-- No table: services write messages (source.message_prefix), which requires no privilege. Messages exist only in the
-- WAL, so undelivered messages are lost if the slot is lost."""
CONNECTOR = """\
-- Connector: reads the slot. It writes only heartbeat messages, which requires no privilege."""
VERIFIER = """\
-- Verifier: login of `outbox verify` and `outbox status`. It cannot update rows or read payloads: it reads only columns
-- that are used for routing, and the positions of rows. It inserts the canary and deletes it in the same transaction.
-- PostgreSQL cannot restrict DELETE to the canary, so the role can delete any row. A delete does not affect the
-- connector, which reads the WAL.
-- To avoid granting DELETE, remove source.verifier, and run verify with --no-canary."""
VERIFIER_OF_MESSAGES = """\
-- Verifier: login of `outbox verify` and `outbox status`. Its canary is a message, which requires no privilege."""
NO_VERIFIER = "-- No verifier: source.verifier is not set, so `outbox verify` logs in as the owner."
BACKFILL = """\
-- `outbox backfill` creates the table outbox_backfill in the schema of the outbox table, and reads each business row
-- with FOR UPDATE, which requires UPDATE. Tables that a query names without a schema also require SELECT."""
PUBLICATION = """\
-- The publication is created before the slot: rows written after the slot but before the publication would be lost.
-- PostgreSQL 18 reports such a loss only in its log."""
CREATE_PUBLICATION = """begin
  if exists (select from pg_publication where pubname = {publication}) then
    raise notice 'publication % exists', {publication};
  elsif exists (select from pg_replication_slots where slot_name = {slot}) then
    raise exception 'slot % exists, but publication % does not', {slot}, {publication}
      using hint = 'run outbox recover, which creates both again and sends the rows in between';
  else
    {create};
    {mark};
  end if;
end"""
SLOT = """\
-- The slot is created last, because the server then retains WAL for it. Its creation waits for every open writing
-- transaction, up to the statement_timeout.
-- On PostgreSQL 17 and later, it is a failover slot, which standbys can copy (sync_replication_slots)."""
MATERIALIZER = "-- Materializer: owns the tables that it creates; it has no access to the outbox."
# A table in a backfill query: a name with a schema after FROM or JOIN. A name before a parenthesis is a function.
JOINED_TABLE = re.compile(r"""\b(?:from|join)\s+("[^"]+"|\w+)\s*\.\s*("[^"]+"|\w+)(?!\w|\s*\()""", re.IGNORECASE)
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def script(pipeline: Pipeline, environment: Environment) -> str:
    """Return the SQL script, with comments, for the source database."""
    return "\n\n".join(_source(pipeline, environment)) + "\n"


def target_script(environment: Environment, name: str) -> str:
    """Return the SQL script, with comments, for the database of a target. Raises ConfigurationError."""
    target = environment.targets.get(name)
    if not isinstance(target, PostgresTarget):
        targets = [key for key, value in environment.targets.items() if isinstance(value, PostgresTarget)]
        hint = f"use a target of kind postgres: {', '.join(targets) or 'the environment file has none'}"
        raise ConfigurationError(f"environment {environment.name} has no PostgreSQL target {name!r}", hint)
    head, check = _head(f"target {one_line(name)}", environment, target.database), _check_database(target.database)
    return "\n\n".join([head, check, *_materializer(target)]) + "\n"


def tables_with_schema(query: str) -> set[str]:
    """Return the tables, as schema.table, that the query names with their schema."""
    matches = JOINED_TABLE.finditer(COMMENT.sub(" ", query))
    return {".".join(part[1:-1] if part[0] == '"' else part.lower() for part in match.groups()) for match in matches}


def _head(subject: str, environment: Environment, database: str) -> str:
    return HEAD.format(subject=subject, environment=environment.name, database=shlex.quote(database))


def _source(pipeline: Pipeline, environment: Environment) -> Iterator[str]:
    source, database = pipeline.source, environment.source
    owner = sql.Identifier(database.admin.user)
    yield f"{_head(f'pipeline {pipeline.name}', environment, database.database)}\n{SOURCE_HEAD}"
    yield _check_database(database.database)
    yield _check_mark(pipeline, environment)
    yield f"{WAL_LEVEL}\n{_do_block(CHECK_WAL_LEVEL)}"
    yield from _create_role(OWNER, owner, database.database, "login replication")
    yield _text(sql.SQL("grant pg_read_all_stats to {}").format(owner))
    yield _text(sql.SQL("grant create on database {} to {}").format(sql.Identifier(database.database), owner))
    if source.uses_table:
        yield from _table(pipeline, owner)
        yield from _backfill(pipeline, owner)
    else:
        yield NO_TABLE
    yield from _create_role(CONNECTOR, sql.Identifier(database.connector.user), database.database, "login replication")
    yield from map(_text, ddl.grant_read(database.connector.user, source.table) if source.uses_table else [])
    yield from _verifier(pipeline, environment)
    yield f"{PUBLICATION}\n{_publication_block(pipeline, environment)}"
    yield _text(sql.SQL("alter publication {} owner to {}").format(sql.Identifier(source.publication), owner))
    yield f"{SLOT}\n{_text(sql.SQL('set statement_timeout = {}').format(SLOT_TIMEOUT_MS))}"
    yield _slot_block(source.slot)
    yield "reset statement_timeout;"


def _check_database(name: str) -> str:
    """Return a DO block that fails in another database, for example of another environment."""
    return _do_block(sql.SQL(CHECK_DATABASE).format(database=sql.Literal(name)).as_string(None))


def _check_mark(pipeline: Pipeline, environment: Environment) -> str:
    """Return a DO block that fails if the publication has the mark of another pipeline or environment."""
    body = sql.SQL(CHECK_MARK).format(
        publication=sql.Literal(pipeline.source.publication),
        any_mark=sql.Literal(f"{ddl.MARK_PREFIX}%"),
        own_mark=sql.Literal(ddl.mark_of_names(pipeline, environment)),
    )
    return _do_block(body.as_string(None))


def _create_role(comment: str, role: sql.Identifier, database: str, attributes: LiteralString) -> Iterator[str]:
    """Yield statements that create the role or change an existing one: pipelines and targets can share a role."""
    create_role = sql.SQL("create role {}").format(role).as_string(None)
    body = f"begin\n  {create_role};\nexception when duplicate_object then null;\nend"
    yield f"{comment}\n{_do_block(body)}"
    yield _text(sql.SQL("alter role {} with {}").format(role, sql.SQL(attributes)))
    yield _text(sql.SQL("grant connect on database {} to {}").format(sql.Identifier(database), role))


def _table(pipeline: Pipeline, owner: sql.Identifier) -> Iterator[str]:
    schema, table = ddl.schema_of(pipeline.source.table), ddl.qualified_name(pipeline.source.table)
    yield f"{TABLE}\n{_text(ddl.create_schema(schema))}"
    yield _text(ddl.create_table(pipeline, if_not_exists=True))
    yield _text(sql.SQL("alter table {} owner to {}").format(table, owner))
    yield _text(sql.SQL("grant usage on schema {} to {}").format(schema, owner))


def _backfill(pipeline: Pipeline, owner: sql.Identifier) -> Iterator[str]:
    backfills = [aggregate.backfill for aggregate in pipeline.aggregates.values() if aggregate.backfill]
    if not backfills:
        return
    outbox_schema = ddl.schema_of(pipeline.source.table)
    yield f"{BACKFILL}\n{_text(sql.SQL('grant create on schema {} to {}').format(outbox_schema, owner))}"
    locked_tables = {backfill.table for backfill in backfills}
    read_tables = set().union(*(tables_with_schema(backfill.query) for backfill in backfills)) - locked_tables
    for schema in sorted({table.split(".")[0] for table in locked_tables | read_tables}):
        yield _text(sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), owner))
    for table in sorted(locked_tables):
        yield _text(sql.SQL("grant select, update on {} to {}").format(ddl.qualified_name(table), owner))
    for table in sorted(read_tables):
        yield _text(sql.SQL("grant select on {} to {}").format(ddl.qualified_name(table), owner))


def _verifier(pipeline: Pipeline, environment: Environment) -> Iterator[str]:
    login = environment.source.verifier
    if login is None:
        yield NO_VERIFIER
        return
    role, source = sql.Identifier(login.user), pipeline.source
    comment = VERIFIER if source.uses_table else VERIFIER_OF_MESSAGES
    yield from _create_role(comment, role, environment.source.database, "login")
    yield _text(sql.SQL("grant pg_read_all_stats to {}").format(role))
    if not source.uses_table:
        return
    column_list = sql.SQL(", ").join(map(sql.Identifier, verified_columns(pipeline)))
    table = ddl.qualified_name(source.table)
    yield _text(sql.SQL("grant usage on schema {} to {}").format(ddl.schema_of(source.table), role))
    yield _text(sql.SQL("grant insert, delete, select ({}) on {} to {}").format(column_list, table, role))


def verified_columns(pipeline: Pipeline) -> list[str]:
    """Return the columns of the outbox table that `outbox verify` reads."""
    names = pipeline.source.columns
    columns = [names.id, names.aggregate_type, names.aggregate_id, names.event_type, names.created_at, "seq", "ctid"]
    return list(dict.fromkeys([*columns, *pipeline.partition_fields.values()]))


def _materializer(target: PostgresTarget) -> Iterator[str]:
    role, schema = sql.Identifier(target.user), sql.Identifier(target.target_schema)
    yield from _create_role(MATERIALIZER, role, target.database, "login")
    yield _text(ddl.create_schema(schema))
    yield _text(sql.SQL("grant usage, create on schema {} to {}").format(schema, role))


def _publication_block(pipeline: Pipeline, environment: Environment) -> str:
    """Return a DO block that creates the publication if neither the publication nor the slot exists."""
    source, mark = pipeline.source, ddl.publication_mark(pipeline, environment, environment.kafka.cluster_id)
    body = sql.SQL(CREATE_PUBLICATION).format(
        publication=sql.Literal(source.publication),
        slot=sql.Literal(source.slot),
        create=ddl.create_publication(source),
        mark=ddl.mark_publication(source.publication, mark),
    )
    return _do_block(body.as_string(None))


def _slot_block(name: str) -> str:
    """Return a DO block that every server version accepts, because PostgreSQL parses only the executed branch."""
    failover, basic = (ddl.create_slot(name, failover=value).as_string(None) for value in (True, False))
    return (
        f"do $version$ begin\n  if exists (select from pg_replication_slots where slot_name = '{name}') then\n"
        f"    raise notice 'slot {name} exists';\n"
        f"  elsif current_setting('server_version_num')::int >= {FAILOVER_SLOTS_SINCE} then\n"
        f"    execute $slot${failover}$slot$;\n  else\n    execute $slot${basic}$slot$;\n  end if;\nend $version$;"
    )


def _do_block(body: str) -> str:
    """Return a DO statement whose dollar-quoting tag does not occur in `body`, which contains names from files."""
    tag = "$role$"
    while tag in body:
        tag = f"$_{tag[1:]}"
    return f"do {tag} {body} {tag};"


def _text(statement: sql.Composed) -> str:
    return f"{statement.as_string(None)};"
