"""The database part of a deployment as SQL, for a DBA: objects, roles, least privilege. Pure: nothing is run here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from psycopg import sql
from psycopg.conninfo import make_conninfo

from outbox_kit.pipeline import Environment, Pipeline, PostgresTarget
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import SLOT_TIMEOUT_MS
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE

HEAD = """\
-- Database objects and roles of pipeline {pipeline} in environment {environment}.
-- Run it once as a superuser, every statement in a transaction of its own (a slot cannot be made in one that wrote):
--   psql --set ON_ERROR_STOP=1 --dbname {database} --file THIS_FILE
-- Amazon RDS and Aurora: leave `replication` out of ALTER ROLE, and `grant rds_replication to` owner and connector.
-- Where EXECUTE on pg_control_system() was revoked from PUBLIC, grant it to owner and verifier: it names the database.
-- What `outbox apply` would make here is made by the same statements: `outbox plan` then has no changes of postgres.
-- No password is in this file: give each new role one with \\password ROLE."""
OWNER = """\
-- Owner: what `outbox apply` logs in as. It owns table and publication; REPLICATION lets it make a slot anew
-- (`outbox apply --recover`); pg_read_all_stats names who keeps a new slot waiting."""
TABLE = """\
-- The outbox table, first. Grant the services' role: insert on it, and usage on its schema, nothing else.
-- With an outbox that deletes its rows at once they need delete, too."""
NO_TABLE = """\
-- No table: services write messages (source.message_prefix), which every role may do. They are in the log only: a slot
-- that is lost takes with it what it had not delivered."""
CONNECTOR = (
    "-- Connector: reads through its slot; it writes nothing but its heartbeat message, which every role may do."
)
VERIFIER = """\
-- Verifier: what `outbox verify` and `outbox status` log in as. It cannot change a row, and sees no payload: of the
-- table it reads the columns that route. It inserts the canary and deletes it in the same transaction, so that the
-- table stays clean. PostgreSQL cannot grant DELETE of the canary alone: it may delete any row, which the connector,
-- reading the log, never notices. Without DELETE: leave source.verifier out, and verify with --no-canary."""
VERIFIER_OF_MESSAGES = """\
-- Verifier: what `outbox verify` and `outbox status` log in as. Its canary is a message, which every role may write."""
NO_VERIFIER = "-- No verifier: without source.verifier `outbox verify` logs in as the owner."
BACKFILL = "-- `outbox backfill` reads each row under its lock, and FOR UPDATE asks for the right to update."
PUBLICATION = """\
-- Publication: before the slot. Made after the slot, rows written in between would be lost:
-- PostgreSQL 18 says so in its log only."""
SLOT = """\
-- Slot: last, for from here on no row is missed. It waits for every open writing transaction: bounded.
-- On PostgreSQL 17 and later it is a failover slot: standbys can keep a copy (sync_replication_slots)."""
MATERIALIZER = "-- Materializer of target {name}: owns the tables that it makes; it has no right to the outbox."


def script(pipeline: Pipeline, environment: Environment) -> str:
    """Statements and their reasons; a paragraph each, with `\\connect` where another database begins."""
    here = (environment.source.host, environment.source.port, environment.source.database)
    parts = [*_source(pipeline, environment)]
    for name, target in environment.targets.items():
        if isinstance(target, PostgresTarget):
            there = (target.host, target.port, target.database)
            parts += [] if there == here else [_connect(target)]
            parts += _materializer(name, target)
            here = there
    return "\n\n".join(parts) + "\n"


def _source(pipeline: Pipeline, environment: Environment) -> Iterator[str]:
    source, login = pipeline.source, environment.source
    owner = sql.Identifier(login.admin.user)
    yield HEAD.format(pipeline=pipeline.name, environment=environment.name, database=_word(login.database))
    yield from _new_login(OWNER, owner, login.database, "login replication")
    yield _text(sql.SQL("grant pg_read_all_stats to {}").format(owner))
    has_table = source.uses_table
    if has_table:
        yield from _table(pipeline, owner)
        yield from _backfill(pipeline, owner)
    else:
        yield NO_TABLE
    yield from _new_login(CONNECTOR, sql.Identifier(login.connector.user), login.database, "login replication")
    yield from map(_text, ddl.grant_read(login.connector.user, source.table) if has_table else [])
    yield from _verifier(pipeline, environment)
    yield f"{PUBLICATION}\n{_text(ddl.create_publication(source))}"
    yield _text(sql.SQL("alter publication {} owner to {}").format(sql.Identifier(source.publication), owner))
    yield f"{SLOT}\n{_text(sql.SQL('set statement_timeout = {}').format(SLOT_TIMEOUT_MS))}"
    yield _slot(source.slot)
    yield "reset statement_timeout;"


def _new_login(why: str, role: sql.Identifier, database: str, attributes: LiteralString) -> Iterator[str]:
    """A role, where it is missing: another pipeline or target may have made it."""
    create = sql.SQL("create role {}").format(role).as_string(None)
    yield f"{why}\ndo $role$ begin\n  {create};\nexception when duplicate_object then null;\nend $role$;"
    yield _text(sql.SQL("alter role {} with {}").format(role, sql.SQL(attributes)))
    yield _text(sql.SQL("grant connect on database {} to {}").format(sql.Identifier(database), role))


def _table(pipeline: Pipeline, owner: sql.Identifier) -> Iterator[str]:
    schema, table = ddl.schema_of(pipeline.source.table), ddl.qualified(pipeline.source.table)
    yield f"{TABLE}\n{_text(ddl.create_schema(schema))}"
    yield _text(ddl.create_table(pipeline))
    yield _text(sql.SQL("alter table {} owner to {}").format(table, owner))
    yield _text(sql.SQL("grant usage on schema {} to {}").format(schema, owner))


def _backfill(pipeline: Pipeline, owner: sql.Identifier) -> Iterator[str]:
    tables = sorted({entry.backfill.table for entry in pipeline.aggregates.values() if entry.backfill})
    for schema in sorted({table.split(".")[0] for table in tables}):
        usage = sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), owner)
        yield f"{BACKFILL}\n{_text(usage)}"
    for table in tables:
        yield _text(sql.SQL("grant select, update on {} to {}").format(ddl.qualified(table), owner))


def _verifier(pipeline: Pipeline, environment: Environment) -> Iterator[str]:
    login = environment.source.verifier
    if login is None:
        yield NO_VERIFIER
        return
    role, source = sql.Identifier(login.user), pipeline.source
    has_table = source.uses_table
    why = VERIFIER if has_table else VERIFIER_OF_MESSAGES
    yield from _new_login(why, role, environment.source.database, "login")
    yield _text(sql.SQL("grant pg_read_all_stats to {}").format(role))
    if not has_table:
        return
    columns = [source.columns.id, source.columns.aggregate_type, source.columns.aggregate_id]
    columns += [source.columns.event_type, source.columns.created_at]
    columns += [entry.partition_field for entry in pipeline.aggregates.values() if entry.partition_field]
    names = sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys(columns)))
    table = ddl.qualified(source.table)
    yield _text(sql.SQL("grant usage on schema {} to {}").format(ddl.schema_of(source.table), role))
    yield _text(sql.SQL("grant insert, delete, select ({}) on {} to {}").format(names, table, role))


def _materializer(name: str, target: PostgresTarget) -> Iterator[str]:
    role, schema = sql.Identifier(target.user), sql.Identifier(target.target_schema)
    yield from _new_login(MATERIALIZER.format(name=_word(name)), role, target.database, "login")
    yield _text(ddl.create_schema(schema))
    yield _text(sql.SQL("grant usage, create on schema {} to {}").format(schema, role))


def _slot(name: str) -> str:
    """The statement for this server's version; the other one is not even parsed."""
    later, earlier = (ddl.create_slot(name, failover=failover).as_string(None) for failover in (True, False))
    return (
        f"do $version$ begin\n  if current_setting('server_version_num')::int >= {FAILOVER_SLOTS_SINCE} then\n"
        f"    execute $slot${later}$slot$;\n  else\n    execute $slot${earlier}$slot$;\n  end if;\nend $version$;"
    )


def _connect(target: PostgresTarget) -> str:
    where = make_conninfo(host=target.host, port=target.port, dbname=target.database)
    quoted = where.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ")
    return f"\\connect -reuse-previous=on '{quoted}'"


def _text(statement: sql.Composed) -> str:
    return f"{statement.as_string(None)};"


def _word(name: str) -> str:
    """A name that may stand in a comment: it cannot end it."""
    return " ".join(name.split())
