"""A separate database on the stack's server, with the outbox and the example's business tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.integration.support import temporary_database

from outbox_kit.demo import workload

# A copy of the contract in docs/contract.md, so that changes of the code do not affect it.
OUTBOX = """
create table public.outbox_event (
  id             uuid primary key default gen_random_uuid(),
  seq            bigint generated always as identity,
  aggregate_type text not null,
  aggregate_id   text not null check (aggregate_id <> ''),
  event_type     text not null,
  payload        jsonb,
  headers        jsonb,
  created_at     timestamptz not null default now()
)
"""


@pytest.fixture(scope="session")
def dsn(source_dsn: str) -> Iterator[str]:
    """Return the DSN of a database that no other test uses."""
    with temporary_database(source_dsn, "sending") as database_dsn:
        with workload.connect(database_dsn) as connection:
            connection.execute(OUTBOX)
            workload.create_tables(connection)
        yield database_dsn


@pytest.fixture
def clean_dsn(dsn: str) -> str:
    """Return the DSN, with empty tables."""
    with psycopg.connect(dsn) as connection:
        connection.execute("truncate outbox_event, library.book, library.author")
    return dsn


@pytest.fixture
def connection(clean_dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Open a connection as a service does, with empty tables."""
    with psycopg.connect(clean_dsn) as connection:
        yield connection


@pytest.fixture
def second_session(clean_dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Open a second session in autocommit mode, which reads only committed rows."""
    with psycopg.connect(clean_dsn, autocommit=True) as connection:
        yield connection
