"""Render the SQL script with which a DBA creates a deployment's database objects and roles, and grants privileges."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import LiteralString

from psycopg import sql
from psycopg.conninfo import make_conninfo

from outbox_common.error_text import one_line
from outbox_kit.pipeline import Environment, Pipeline, PostgresTarget
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import SLOT_TIMEOUT_MS
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE

HEAD = """\
-- Database objects and roles of pipeline {pipeline} in environment {environment}.
-- Run this script once as a superuser. Each statement is a transaction, because a slot cannot be created after a write.
--   psql --set ON_ERROR_STOP=1 --dbname {database} --file THIS_FILE
-- On Amazon RDS and Aurora, omit `replication` from ALTER ROLE; grant rds_replication to the owner and the connector.
-- If EXECUTE on pg_control_system() was revoked from PUBLIC, grant it to the owner and the verifier.
-- `outbox apply` uses the same statements, so `outbox plan` does not show changes to PostgreSQL afterwards.
-- The file contains no passwords. Set the password of each new role with \\password ROLE."""
OWNER = """\
-- Owner: login of `outbox apply`. It owns the table and the publication. REPLICATION allows it to recreate the slot
-- (`outbox apply --recover`); pg_read_all_stats allows it to report sessions that delay the creation of a slot."""
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
BACKFILL = "-- `outbox backfill` reads each row with FOR UPDATE, which requires UPDATE."
PUBLICATION = """\
-- The publication is created before the slot: rows written after the slot but before the publication would be lost.
-- PostgreSQL 18 reports such a loss only in its log."""
SLOT = """\
-- The slot is created last, because the server then retains WAL for it. Its creation waits for every open writing
-- transaction, up to the statement_timeout.
-- On PostgreSQL 17 and later, it is a failover slot, which standbys can copy (sync_replication_slots)."""
MATERIALIZER = "-- Materializer of target {name}: owns the tables that it creates; it has no access to the outbox."


def script(pipeline: Pipeline, environment: Environment) -> str:
    """Return the SQL script with comments. The statements for another database follow a `\\connect` command."""
    source = environment.source
    current_address = (source.host, source.port, source.database)
    paragraphs = [*_source(pipeline, environment)]
    for name, target in environment.targets.items():
        if isinstance(target, PostgresTarget):
            address = (target.host, target.port, target.database)
            paragraphs += [] if address == current_address else [_connect_command(target)]
            paragraphs += _materializer(name, target)
            current_address = address
    return "\n\n".join(paragraphs) + "\n"


def _source(pipeline: Pipeline, environment: Environment) -> Iterator[str]:
    source, database = pipeline.source, environment.source
    owner = sql.Identifier(database.admin.user)
    yield HEAD.format(pipeline=pipeline.name, environment=environment.name, database=shlex.quote(database.database))
    yield from _create_role(OWNER, owner, database.database, "login replication")
    yield _text(sql.SQL("grant pg_read_all_stats to {}").format(owner))
    if source.uses_table:
        yield from _table(pipeline, owner)
        yield from _backfill(pipeline, owner)
    else:
        yield NO_TABLE
    yield from _create_role(CONNECTOR, sql.Identifier(database.connector.user), database.database, "login replication")
    yield from map(_text, ddl.grant_read(database.connector.user, source.table) if source.uses_table else [])
    yield from _verifier(pipeline, environment)
    yield f"{PUBLICATION}\n{_text(ddl.create_publication(source))}"
    yield _text(sql.SQL("alter publication {} owner to {}").format(sql.Identifier(source.publication), owner))
    yield f"{SLOT}\n{_text(sql.SQL('set statement_timeout = {}').format(SLOT_TIMEOUT_MS))}"
    yield _slot_block(source.slot)
    yield "reset statement_timeout;"


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
    yield _text(ddl.create_table(pipeline))
    yield _text(sql.SQL("alter table {} owner to {}").format(table, owner))
    yield _text(sql.SQL("grant usage on schema {} to {}").format(schema, owner))


def _backfill(pipeline: Pipeline, owner: sql.Identifier) -> Iterator[str]:
    tables = sorted({aggregate.backfill.table for aggregate in pipeline.aggregates.values() if aggregate.backfill})
    for schema in sorted({table.split(".")[0] for table in tables}):
        grant_usage = sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), owner)
        yield f"{BACKFILL}\n{_text(grant_usage)}"
    for table in tables:
        yield _text(sql.SQL("grant select, update on {} to {}").format(ddl.qualified_name(table), owner))


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
    columns = [source.columns.id, source.columns.aggregate_type, source.columns.aggregate_id]
    columns += [source.columns.event_type, source.columns.created_at, "seq", "ctid"]
    columns += [aggregate.partition_field for aggregate in pipeline.aggregates.values() if aggregate.partition_field]
    column_list = sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys(columns)))
    table = ddl.qualified_name(source.table)
    yield _text(sql.SQL("grant usage on schema {} to {}").format(ddl.schema_of(source.table), role))
    yield _text(sql.SQL("grant insert, delete, select ({}) on {} to {}").format(column_list, table, role))


def _materializer(name: str, target: PostgresTarget) -> Iterator[str]:
    role, schema = sql.Identifier(target.user), sql.Identifier(target.target_schema)
    yield from _create_role(MATERIALIZER.format(name=one_line(name)), role, target.database, "login")
    yield _text(ddl.create_schema(schema))
    yield _text(sql.SQL("grant usage, create on schema {} to {}").format(schema, role))


def _slot_block(name: str) -> str:
    """Return a DO block that every server version accepts, because PostgreSQL parses only the executed branch."""
    failover, basic = (ddl.create_slot(name, failover=value).as_string(None) for value in (True, False))
    return (
        f"do $version$ begin\n  if current_setting('server_version_num')::int >= {FAILOVER_SLOTS_SINCE} then\n"
        f"    execute $slot${failover}$slot$;\n  else\n    execute $slot${basic}$slot$;\n  end if;\nend $version$;"
    )


def _do_block(body: str) -> str:
    """Return a DO statement whose dollar-quoting tag does not occur in `body`, which contains names from files."""
    tag = "$role$"
    while tag in body:
        tag = f"$_{tag[1:]}"
    return f"do {tag} {body} {tag};"


def _connect_command(target: PostgresTarget) -> str:
    conninfo = make_conninfo(host=target.host, port=target.port, dbname=target.database)
    quoted = conninfo.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ")
    return f"\\connect -reuse-previous=on '{quoted}'"


def _text(statement: sql.Composed) -> str:
    return f"{statement.as_string(None)};"
