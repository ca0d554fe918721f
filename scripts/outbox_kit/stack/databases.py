"""The roles and databases of the stack's PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from outbox_kit.stack.state import StackState


def create_databases(connection: psycopg.Connection[Any], state: StackState) -> None:
    """Make the roles and databases that are missing; what is there keeps its settings, its password aside.

    The connection is the administrator's, in autocommit (create database takes no transaction).
    """
    set_role(connection, state.connector_user, state.connector_password, "replication")
    set_role(connection, state.materializer_user, state.materializer_password, "noreplication")
    set_role(connection, state.registry_user, state.registry_password, "noreplication")
    create_database(connection, state.source_database, state.admin_user)
    create_database(connection, state.target_database, state.materializer_user)
    create_database(connection, state.registry_database, state.registry_user)


def set_role(connection: psycopg.Connection[Any], name: str, password: str, attribute: str) -> None:
    """Make a login role if it is missing, and give it its password."""
    role = sql.Identifier(name)
    if not connection.execute("select 1 from pg_roles where rolname = %s", [name]).fetchone():
        connection.execute(sql.SQL("create role {} login {}").format(role, sql.SQL(attribute)))
    # Hashed here, so that no log or statistics view of the server can show the password itself.
    verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    connection.execute(sql.SQL("alter role {} password {}").format(role, sql.Literal(verifier.decode())))


def create_database(connection: psycopg.Connection[Any], name: str, owner: str) -> None:
    """Make a database if it is missing."""
    if not connection.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
        connection.execute(sql.SQL("create database {} owner {}").format(sql.Identifier(name), sql.Identifier(owner)))
