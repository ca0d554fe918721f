"""Read what limits the connector's role: privileges on the table, expiry, connection limit and timeouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import LiteralString

from psycopg import sql

from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.results.checks import Severity

DAY_S = 24 * 60 * 60
# A password that expires within this time is reported, so that it can be changed before the connector's logins fail.
EXPIRY_NOTICE_S = 7 * DAY_S
SENDER_TIMEOUT = "wal_sender_timeout"
FLUSH_ARGUMENT_SINCE = 170000  # this version added an argument to the function pg_logical_emit_message
# Timeouts that end statements or sessions of the connector. The value 0 disables a timeout.
TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "transaction_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)
# Before PostgreSQL 17, subtraction fails for VALID UNTIL 'infinity'.
LIMITS: LiteralString = """
    select case when isfinite(r.rolvaliduntil) then extract(epoch from r.rolvaliduntil - now())::bigint end
             as seconds_to_expiry,
           case when r.rolsuper then -1 else r.rolconnlimit end as connection_limit,
           (select count(*) from pg_stat_activity a where a.usesysid = r.oid)::int as connections,
           has_database_privilege(r.oid, current_database(), 'connect') as can_connect,
           coalesce((select has_schema_privilege(r.oid, n.oid, 'usage') from pg_namespace n
                     where n.nspname = %(schema)s), false) as can_use_schema,
           coalesce(has_table_privilege(r.oid, to_regclass(%(table)s), 'select'), false) as can_select
    from pg_roles r where r.rolname = %(role)s"""
# Settings of the role in the database override settings of the role, which override settings of the database.
SETTINGS: LiteralString = """
    select distinct on (name) split_part(entry, '=', 1) as name, split_part(entry, '=', 2) as value
    from pg_db_role_setting s, unnest(s.setconfig) as entry
    where s.setrole in (0, (select oid from pg_roles where rolname = %(role)s))
      and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
      and split_part(entry, '=', 1) = any(%(names)s)
    order by name, s.setrole = 0, s.setdatabase = 0"""
UNITS_MS = {"us": 0.001, "": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class RoleLimits:
    """Limits of the role. `settings` has those TIMEOUTS (and SENDER_TIMEOUT) that are set for the role or database.

    `seconds_to_expiry` is negative after expiry, and None without VALID UNTIL. `connection_limit` is -1 if unlimited.
    """

    seconds_to_expiry: int | None = None
    connection_limit: int = -1
    connections: int = 0
    can_connect: bool = False
    can_use_schema: bool = False
    can_select: bool = False
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RoleProblem:
    """What is wrong with the role, and the SQL statement that corrects it."""

    text: str
    statement: sql.Composed
    severity: Severity = Severity.ERROR


def read_role_limits(connection: Connection, role: str, table: str) -> RoleLimits:
    """Read the limits of the role. A role that does not exist has neither privileges nor limits."""
    parameters = {"role": role, "table": ddl.quoted_text(table), "schema": table.split(".", maxsplit=1)[0]}
    row = connection.execute(LIMITS, parameters).fetchone() or {}
    names = {"role": role, "names": [*TIMEOUTS, SENDER_TIMEOUT]}
    settings = {entry["name"]: entry["value"] for entry in connection.execute(SETTINGS, names)}
    return RoleLimits(**row, settings=settings)


def limit_problems(limits: RoleLimits, role: str, database: str) -> Iterator[RoleProblem]:
    """Yield a problem for each setting that ends the role's connections or rejects new connections."""
    identifier = sql.Identifier(role)
    seconds = limits.seconds_to_expiry
    if seconds is not None and seconds <= EXPIRY_NOTICE_S:
        text = f"the password of {role} expired {_days(-seconds)} ago (VALID UNTIL)"
        if seconds > 0:
            text = f"the password of {role} expires in {_days(seconds)} (VALID UNTIL)"
        statement = sql.SQL("alter role {} valid until 'infinity'").format(identifier)
        yield RoleProblem(text, statement, Severity.WARNING if seconds > 0 else Severity.ERROR)
    if 0 <= limits.connection_limit <= limits.connections:
        text = f"{role} uses {limits.connections} of {limits.connection_limit} connections (CONNECTION LIMIT)"
        yield RoleProblem(text, sql.SQL("alter role {} connection limit -1").format(identifier))
    for name in TIMEOUTS:
        value = limits.settings.get(name, "0")
        if parse_milliseconds(value):
            # A setting for a role in a database overrides all others, so it takes effect wherever the value was set.
            statement = sql.SQL("alter role {} in database {} set {} = 0").format(
                identifier, sql.Identifier(database), sql.Identifier(name)
            )
            yield RoleProblem(f"{name} of {role} is {value}", statement, Severity.WARNING)


def privilege_statements(role: str, database: str, table: str, version: int) -> dict[str, sql.Composed]:
    """Return a mapping from the name of each privilege in the check to the statement that grants it to the role."""
    usage, select = ddl.grant_read(role, table)
    identifier = sql.Identifier(role)
    arguments = sql.SQL("boolean, text, text, boolean" if version >= FLUSH_ARGUMENT_SINCE else "boolean, text, text")
    emit = sql.SQL("grant execute on function pg_logical_emit_message({}) to {}").format(arguments, identifier)
    return {
        "login": sql.SQL("alter role {} login").format(identifier),
        "replication": sql.SQL("alter role {} replication").format(identifier),
        "connect on the database": sql.SQL("grant connect on database {} to {}").format(
            sql.Identifier(database), identifier
        ),
        "usage on the schema": usage,
        "select on the table": select,
        "execute pg_logical_emit_message": emit,
    }


def parse_milliseconds(text: str) -> int:
    """Parse a duration in PostgreSQL's notation, such as `5s` or `60000` (milliseconds). Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d|)", text.strip().strip("'\""))
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    return int(float(match[1]) * UNITS_MS[match[2]])


def _days(seconds: int) -> str:
    return f"{seconds / DAY_S:.1f} days"
