"""Tables of the service. `outbox apply` creates the outbox table."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
Connection = psycopg.Connection[Row]
OUTBOX = "books.outbox_event"
TABLES = """
create schema if not exists books;
create table if not exists books.author (
  id uuid primary key default gen_random_uuid(), name text not null, country text
);
create table if not exists books.book (
  id uuid primary key default gen_random_uuid(), author_id uuid not null references books.author,
  title text not null, pages integer
);
create index if not exists book_author_id on books.book (author_id);
"""


def connect(dsn: str) -> Connection:
    """Open a connection whose rows are dictionaries, as `emit` accepts them."""
    return psycopg.connect(dsn, row_factory=dict_row)
