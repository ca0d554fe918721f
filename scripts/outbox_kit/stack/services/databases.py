"""Create roles and databases in the stack's PostgreSQL server, which runs embedded or in a container."""

from __future__ import annotations

import secrets
from typing import Any

import psycopg
from psycopg import sql
from pydantic import BaseModel, ConfigDict, Field


def new_password() -> str:
    """Return a new password that does not need quoting in a URI, a shell or a properties file."""
    return secrets.token_urlsafe(24)


class Logins(BaseModel):
    """Login roles and databases of a stack's PostgreSQL server. By default, each role gets a new password."""

    model_config = ConfigDict(frozen=True)

    source_database: str = "library"
    target_database: str = "warehouse"
    registry_database: str = "registry"
    admin_user: str = "outbox_admin"
    admin_password: str = Field(default_factory=new_password, repr=False)
    connector_user: str = "outbox_connector"
    connector_password: str = Field(default_factory=new_password, repr=False)
    materializer_user: str = "outbox_materializer"
    materializer_password: str = Field(default_factory=new_password, repr=False)
    registry_user: str = "outbox_registry"
    registry_password: str = Field(default_factory=new_password, repr=False)


def create_databases(connection: psycopg.Connection[Any], logins: Logins) -> None:
    """Create the missing roles and databases, and set the passwords of existing roles.

    The administrator's `connection` must be in autocommit mode: `create database` cannot run in a transaction.
    """
    set_role(connection, logins.connector_user, logins.connector_password, "replication")
    set_role(connection, logins.materializer_user, logins.materializer_password, "noreplication")
    set_role(connection, logins.registry_user, logins.registry_password, "noreplication")
    create_database(connection, logins.source_database, logins.admin_user)
    create_database(connection, logins.target_database, logins.materializer_user)
    create_database(connection, logins.registry_database, logins.registry_user)


def set_role(connection: psycopg.Connection[Any], name: str, password: str, attribute: str) -> None:
    """Create a login role if it is missing, and set its password."""
    role = sql.Identifier(name)
    if not connection.execute("select 1 from pg_roles where rolname = %s", [name]).fetchone():
        connection.execute(sql.SQL("create role {} login {}").format(role, sql.SQL(attribute)))
    # The client hashes the password, so that it does not appear in a log or statistics view of the server.
    verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    connection.execute(sql.SQL("alter role {} password {}").format(role, sql.Literal(verifier.decode())))


def create_database(connection: psycopg.Connection[Any], name: str, owner: str) -> None:
    if not connection.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
        connection.execute(sql.SQL("create database {} owner {}").format(sql.Identifier(name), sql.Identifier(owner)))
