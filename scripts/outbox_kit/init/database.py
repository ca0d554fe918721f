"""Connect to the database from which a project is derived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from outbox_common.error_text import one_line
from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.project_files import Database
from outbox_kit.init.state_view import create_view
from outbox_kit.stack import Stack

TIMEOUT_S = 10
SECRETS = frozenset({"password", "sslpassword"})


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
    _require_valid(text)
    try:
        connection = psycopg.connect(text, connect_timeout=TIMEOUT_S, autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        hint = "check --dsn; set the password with PGPASSWORD, or in a password file or a service file"
        raise UnreachableError(f"cannot connect to PostgreSQL: {one_line(str(error))}", hint) from None
    try:
        with connection:
            connection.execute(f"set statement_timeout = '{TIMEOUT_S * 6}s'")
            yield connection
    except psycopg.Error as error:
        lacks_privilege = isinstance(error, psycopg.errors.InsufficientPrivilege)
        hint = "use the owner of the tables in --dsn" if lacks_privilege else "see the log of PostgreSQL"
        raise RejectedError(f"PostgreSQL: {one_line(str(error))}", hint) from None


def create_views(connection: psycopg.Connection[Any], aggregates: Iterable[AggregateTables]) -> None:
    """Create or replace the state views, in one transaction."""
    with connection.transaction():
        for aggregate in aggregates:
            connection.execute(create_view(aggregate).encode())


def without_password(dsn: str | None) -> str | None:
    """Return the DSN as keywords, without a password."""
    if dsn is None:
        return None
    values = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if key not in SECRETS}
    return make_conninfo("", **values)


def address(connection: psycopg.Connection[Any]) -> Database:
    """Return the address and the login of an open connection."""
    info = connection.info
    host = "localhost" if info.host.startswith(("/", "@")) or not info.host else info.host
    return Database(host, info.port, info.dbname, info.user)


def _require_valid(dsn: str) -> None:
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        hint = "use a URI or keywords, as in --dsn postgresql://USER@HOST/DATABASE or --dsn service=NAME"
        raise ConfigurationError("--dsn is not a valid PostgreSQL connection string", hint) from None
