"""Connect to the database from which a project is derived."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from outbox_common.error_text import one_line
from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.state_view import MARK, view_name
from outbox_kit.postgres import ddl
from outbox_kit.stack import Stack

CONNECT_TIMEOUT_S, STATEMENT_TIMEOUT_S = 10, 60
# Parameters that are printed. Others, such as `options`, can contain secrets.
PRINTED = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode", "sslrootcert")
DSN_HINT = "use a URI or keywords, as in --dsn postgresql://USER@HOST/DATABASE or --dsn service=NAME"


@dataclass(frozen=True)
class SourceAddress:
    """Address and login of an existing source database, as in an environment file."""

    host: str
    port: int
    database: str
    user: str
    tls: dict[str, str]
    """The parameters sslmode and sslrootcert, if they are set."""


@contextmanager
def opened(dsn: str | None, stack: Stack) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """Open a connection to the database of `dsn`, or to the source database of the running stack.

    Raises ConfigurationError if neither exists or the DSN is not valid, UnreachableError, and RejectedError if a
    statement in the context fails.
    """
    state = stack.state()
    if dsn is None and state is None:
        hint = "run `outbox stack up` first, or pass --dsn, as in --dsn postgresql://USER@HOST/DATABASE"
        raise ConfigurationError("no database: the embedded stack is not running, and --dsn is not given", hint)
    text = dsn if dsn is not None else getattr(state, "postgres", "")
    _parse(text)
    try:
        connection = psycopg.connect(
            text, connect_timeout=CONNECT_TIMEOUT_S, client_encoding="utf8", autocommit=True, row_factory=dict_row
        )
    except psycopg.OperationalError as error:
        hint = "check --dsn; set the password with PGPASSWORD, or in a password file or a service file"
        message = f"cannot connect to PostgreSQL: {one_line(str(error))}"
        raise UnreachableError(message, hint if dsn is not None else "run `outbox stack status`") from None
    try:
        with connection:
            # Without a search path, types are named with their schemas.
            connection.execute(f"set search_path = ''; set statement_timeout = '{STATEMENT_TIMEOUT_S}s'")
            yield connection
    except psycopg.Error as error:
        lacks_privilege = isinstance(error, psycopg.errors.InsufficientPrivilege)
        hint = "use the owner of the tables in --dsn" if lacks_privilege else "see the log of PostgreSQL"
        raise RejectedError(f"PostgreSQL: {one_line(str(error))}", hint) from None


def address(connection: psycopg.Connection[Any]) -> SourceAddress:
    """Return the address and the login of an open connection. Raises ConfigurationError for names with braces."""
    info = connection.info
    host = "localhost" if info.host.startswith(("/", "@")) or not info.host else info.host
    given = info.get_parameters()
    tls = {str(name): value for name, value in given.items() if name in ("sslmode", "sslrootcert")}
    for value in (host, info.dbname, info.user, *tls.values()):
        if "{" in value:  # environment files contain expressions in braces
            raise ConfigurationError(f"{value!r} contains a brace", "use a database and a login without braces")
    return SourceAddress(host, info.port, info.dbname, info.user, tls)


def printable_dsn(dsn: str) -> str:
    """Return the DSN as keywords, without parameters that can be secrets."""
    values = {key: str(value) for key, value in _parse(dsn).items() if key in PRINTED}
    return make_conninfo("", **values)


def taken_names(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the names, as schema.name, that a new view cannot have: those of types, and of relations except views."""
    query = (
        "select format('%s.%s', nspname, relname) as name from pg_class join pg_namespace n on n.oid = relnamespace "
        "where relkind <> 'v' union select format('%s.%s', nspname, typname) from pg_type t "
        "join pg_namespace n on n.oid = typnamespace left join pg_class c on c.oid = typrelid "
        "where c.relkind is distinct from 'v'"
    )
    return {row["name"] for row in connection.execute(query)}


def refuse_taken_names(taken: Collection[str], chosen: Iterable[AggregateTables]) -> None:
    """Raise ConfigurationError if something other than a view has the name of a view."""
    for name in map(view_name, chosen):
        if name in taken:
            hint = "choose another name of the aggregate, as in --aggregate NAME=TABLE"
            raise ConfigurationError(f"the view {name} cannot be created: a type or table has this name", hint)


def create_view(connection: psycopg.Connection[Any], aggregate: AggregateTables, statements: str) -> bool:
    """Execute the file of the aggregate's view. Return whether the view existed and was replaced.

    Raises ConfigurationError if a view of others has its name.
    """
    name = view_name(aggregate)
    query = "select relkind, obj_description(oid, 'pg_class') as comment from pg_class where oid = to_regclass(%s)"
    row = connection.execute(query, (ddl.quoted_text(name),)).fetchone()
    if row is not None and row["comment"] != MARK.format(name=aggregate.name):
        hint = "choose another name of the aggregate, as in --aggregate NAME=TABLE"
        raise ConfigurationError(f"{name} exists, and `outbox init` did not create it", hint)
    connection.execute("reset search_path")  # the operators of extensions are often in the schema public
    connection.execute(statements.encode())
    return row is not None


def _parse(dsn: str) -> dict[str, Any]:
    try:
        values = dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        raise ConfigurationError("--dsn is not a valid PostgreSQL connection string", DSN_HINT) from None
    if "@" in str(values.get("host", "")).lstrip("@"):
        hint = "write a password with an @ as %40, or set it with PGPASSWORD"
        raise ConfigurationError("--dsn: the host contains an @", hint)
    return values
