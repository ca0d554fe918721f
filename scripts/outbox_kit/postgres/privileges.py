"""List the privileges and settings that the logins of a deployment lack, each with the SQL that adds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox_kit.pipeline import Backfill, Environment, Pipeline
from outbox_kit.pipeline.key_columns import all_keys
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.postgres.dba_script import tables_with_schema, verified_columns

SERVER: LiteralString = """
    select current_setting('wal_level') as wal_level, current_database() as database,
           exists (select from pg_replication_slots where slot_name = %(slot)s) as has_slot,
           exists (select from pg_publication where pubname = %(publication)s) as has_publication,
           current_setting('max_replication_slots')::int as max_replication_slots,
           (select count(*) from pg_replication_slots) as used_max_replication_slots,
           current_setting('max_wal_senders')::int as max_wal_senders,
           (select count(*) from pg_stat_replication) as used_max_wal_senders"""
# Objects are selected by name, because to_regclass() fails if the login lacks USAGE on the schema. On Amazon RDS and
# Aurora, members of rds_replication can replicate.
GRANTED: LiteralString = """
    select r.rolname as role, '' as object, array[
        case when r.rolcanlogin then 'login' end,
        case when r.rolsuper or r.rolreplication or exists (
          select from pg_roles m where m.rolname = 'rds_replication' and pg_has_role(r.oid, m.oid, 'member'))
        then 'replication' end,
        case when pg_has_role(r.oid, 'pg_read_all_stats', 'usage') then 'pg_read_all_stats' end,
        case when has_function_privilege(r.oid, 'pg_control_system()', 'execute')
        then 'execute on pg_control_system()' end,
        case when has_database_privilege(r.oid, current_database(), 'connect') then 'connect to the database' end,
        case when has_database_privilege(r.oid, current_database(), 'create') then 'create on the database' end
    ] as privileges
    from pg_roles r where r.rolname = any(%(roles)s)
    union all
    select r.rolname, 'schema ' || n.nspname, array(
        select p from unnest(array['usage', 'usage with grant option', 'create']) as p
        where has_schema_privilege(r.oid, n.oid, p))
    from pg_roles r cross join pg_namespace n where r.rolname = any(%(roles)s) and n.nspname = any(%(schemas)s)
    union all
    select r.rolname, n.nspname || '.' || c.relname, array(
        select p from unnest(array['select', 'insert', 'update', 'delete']) as p
        where has_table_privilege(r.oid, c.oid, p)
        union all select 'ownership' where pg_has_role(r.oid, c.relowner, 'usage')
        union all select 'select ("' || a.attname || '")' from pg_attribute a
        where a.attrelid = c.oid and (a.attnum > 0 or a.attname = 'ctid')
          and has_column_privilege(r.oid, c.oid, a.attnum, 'select'))
    from pg_roles r cross join pg_class c join pg_namespace n on n.oid = c.relnamespace
    where r.rolname = any(%(roles)s) and n.nspname = any(%(schemas)s)
      and n.nspname || '.' || c.relname = any(%(tables)s)"""
# PREPARE locks the tables of a query, and requires no privileges on them. The tables below a view are excluded, because
# they are read with the privileges of the view's owner.
PREPARED_TABLES: LiteralString = """
    select n.nspname || '.' || c.relname as name
    from pg_locks l join pg_class c on c.oid = l.relation join pg_namespace n on n.oid = c.relnamespace
    where l.pid = pg_backend_pid() and l.locktype = 'relation' and c.relkind <> 'i' and n.nspname <> 'pg_catalog'
      and not exists (
        select from pg_rewrite w join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        join pg_locks v on v.relation = w.ev_class and v.pid = l.pid
        where d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid and w.ev_class <> c.oid)"""
IDENTIFY, CONNECT, CREATE = "execute on pg_control_system()", "connect to the database", "create on the database"
STATEMENTS: dict[str, LiteralString] = {
    "login": "alter role {role} login",
    "replication": "alter role {role} replication",
    "pg_read_all_stats": "grant pg_read_all_stats to {role}",
    IDENTIFY: "grant execute on function pg_control_system() to {role}",
    CONNECT: "grant connect on database {database} to {role}",
    CREATE: "grant create on database {database} to {role}",
}
Need = tuple[str, list[str], str, str]
"""Role, privileges, object (see Access), and the command that needs them."""


@dataclass(frozen=True)
class Access:
    """Facts about the server and the logins.

    `granted` maps each existing role and object to the role's privileges. An object is a table (`schema.table`), a
    schema (`schema NAME`), or empty for the server and the database. `read_tables` are the tables in backfill queries.
    """

    server: Row
    granted: dict[tuple[str, str], set[str]]
    read_tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missing:
    """A privilege or setting that is missing, the command that needs it, and the SQL that adds it."""

    role: str
    privilege: str
    needed_by: str
    statement: str


def read_access(
    connection: Connection, pipeline: Pipeline, environment: Environment, *, with_queries: bool = False
) -> Access:
    """Read the facts for missing_privileges(), for which the login needs no privileges.

    The tables in backfill queries are read only if `with_queries` is set, because `apply` does not need them.
    """
    source, database, backfills = pipeline.source, environment.source, _backfills(pipeline)
    users = [login.user for login in (database.admin, database.connector, database.verifier) if login is not None]
    queries = backfills if with_queries else []
    read_tables = sorted(set().union(*(_tables_of(connection, backfill) for backfill in queries)))
    tables = [source.table, *_own_tables(pipeline), *(backfill.table for backfill in backfills), *read_tables]
    schemas = [table.split(".")[0] for table in tables]
    parameters: dict[str, Any] = {"slot": source.slot, "publication": source.publication, "roles": users}
    parameters |= {"schemas": schemas, "tables": tables}
    rows = connection.execute(GRANTED, parameters).fetchall()
    return Access(
        server=connection.execute(SERVER, parameters).fetchall()[0],
        granted={(row["role"], row["object"]): set(row["privileges"]) for row in rows},
        read_tables=tuple(read_tables),
    )


def _backfills(pipeline: Pipeline) -> list[Backfill]:
    return [aggregate.backfill for aggregate in pipeline.aggregates.values() if aggregate.backfill]


def _own_tables(pipeline: Pipeline) -> list[str]:
    return [f"{pipeline.source.table.split('.')[0]}.{name}" for name in ("outbox_relay", "outbox_backfill")]


def _tables_of(connection: Connection, backfill: Backfill) -> set[str]:
    """Return the tables that a backfill query reads. Without USAGE on a schema, return those named with a schema.

    An invalid query has no tables, because `outbox backfill` reports its error.
    """
    query = backfill.query_for(all_keys(backfill.key, ddl.qualified_name(backfill.table)).as_string(None))
    try:
        with connection.transaction(force_rollback=True):
            # With binary results, the server accepts only one statement, so that the query cannot end the transaction.
            connection.execute(f"prepare outbox_tables as {query}".encode(), binary=True)
            tables = {row["name"] for row in connection.execute(PREPARED_TABLES)}
            connection.execute("deallocate outbox_tables")
            return tables
    except psycopg.errors.InsufficientPrivilege:
        return tables_with_schema(query)
    except psycopg.Error:
        return set()


def missing_privileges(pipeline: Pipeline, environment: Environment, access: Access) -> list[Missing]:
    """Return everything that is missing, in the order in which the SQL can be run."""
    database, granted, found = environment.source, access.granted, _missing_settings(access.server)
    for login, command in ((database.connector, "apply"), (database.verifier, "verify")):
        if login is not None and (login.user, "") not in granted:
            text = "the role itself (set its password afterwards)"
            found.append(Missing(login.user, text, command, f"create role {_quoted(login.user)}"))
    for role, privileges, object_name, command in _needs(pipeline, environment, access):
        object_exists = (database.admin.user, object_name) in granted
        names = [name for name in privileges if name not in granted.get((role, object_name), ())]
        if names and object_exists:
            text = f"{', '.join(names)}{object_name and f' on {object_name}'}"
            statement = _statement(role, names, object_name, access.server["database"])
            found.append(Missing(role, text, command, statement))
    unique: dict[str, Missing] = {}
    for item in found:
        unique.setdefault(item.statement, item)
    return list(unique.values())


def _missing_settings(server: Row) -> list[Missing]:
    found = []
    if server["wal_level"] != "logical":
        text = f"wal_level = logical (found {server['wal_level']}); restart the server afterwards"
        found.append(Missing("the server", text, "apply", "alter system set wal_level = logical"))
    for name in ("max_replication_slots", "max_wal_senders"):
        if not server["has_slot"] and server[f"used_{name}"] >= server[name]:
            text = f"a free entry ({name} = {server[name]}); restart the server afterwards"
            found.append(Missing("the server", text, "apply", f"alter system set {name} = {server[name] + 1}"))
    return found


def _needs(pipeline: Pipeline, environment: Environment, access: Access) -> Iterator[Need]:
    """Yield the required privileges. Objects that do not exist are included, and require no privileges."""
    source, database, granted = pipeline.source, environment.source, access.granted
    admin, connector, verifier = database.admin.user, database.connector.user, database.verifier
    has_publication, schema = access.server["has_publication"], _schema(source.table)
    yield admin, [IDENTIFY], "", "apply"
    yield admin, ["pg_read_all_stats"], "", "verify"
    yield admin, ["replication"], "", "recover" if access.server["has_slot"] else "apply"
    if not has_publication or (source.uses_table and (admin, schema) not in granted):
        yield admin, [CREATE], "", "apply"
    yield connector, ["login", "replication", CONNECT], "", "the connector"
    if verifier is not None:
        yield verifier.user, ["login", CONNECT, IDENTIFY, "pg_read_all_stats"], "", "verify"
    if not source.uses_table:
        return
    can_read = "select" in granted.get((connector, source.table), ())
    yield admin, ["usage"] if (admin, source.table) in granted else ["usage", "create"], schema, "apply"
    yield admin, ["ownership"], source.table, "recover" if has_publication and can_read else "apply"
    # `apply` grants these privileges to the connector if the admin's role can grant them.
    if "usage with grant option" not in granted.get((admin, schema), ()):
        yield connector, ["usage"], schema, "apply"
    if "ownership" not in granted.get((admin, source.table), ()):
        yield connector, ["select"], source.table, "apply"
    yield from _needs_of_tables(pipeline, admin, access)
    if verifier is not None:
        columns = [f'select ("{name}")' for name in verified_columns(pipeline)]
        yield verifier.user, ["usage"], schema, "verify"
        yield verifier.user, ["insert", "delete", *columns], source.table, "verify"
        yield verifier.user, ["select"], _own_tables(pipeline)[0], "verify"


def _needs_of_tables(pipeline: Pipeline, admin: str, access: Access) -> Iterator[Need]:
    """Yield the privileges on the tables other than the outbox table."""
    relay_table, progress_table = _own_tables(pipeline)
    yield admin, ["select"], relay_table, "apply"
    if _backfills(pipeline) and (admin, progress_table) not in access.granted:
        yield admin, ["create"], _schema(progress_table), "backfill"
    yield admin, ["select", "insert", "update", "delete"], progress_table, "backfill"
    tables = {table: ["select"] for table in access.read_tables}
    tables |= {backfill.table: ["select", "update"] for backfill in _backfills(pipeline)}
    for table, privileges in tables.items():
        yield admin, ["usage"], _schema(table), "backfill"
        yield admin, privileges, table, "backfill"


def _schema(table: str) -> str:
    return f"schema {table.split('.', maxsplit=1)[0]}"


def _statement(role: str, privileges: list[str], object_name: str, database: str) -> str:
    if not object_name:
        names = {"role": sql.Identifier(role), "database": sql.Identifier(database)}
        return "; ".join(sql.SQL(STATEMENTS[name]).format(**names).as_string(None) for name in privileges)
    kind, _, name = object_name.rpartition(" ")
    quoted_object = f"{kind} {ddl.quoted_text(name)}".strip()
    if privileges == ["ownership"]:
        return f"alter table {quoted_object} owner to {_quoted(role)}"
    return f"grant {', '.join(privileges)} on {quoted_object} to {_quoted(role)}"


def _quoted(role: str) -> str:
    return sql.Identifier(role).as_string(None)
