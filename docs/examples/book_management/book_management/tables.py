"""Tables of the service, and the values that it writes. `outbox apply` creates the outbox table."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
Connection = psycopg.Connection[Row]
SCHEMA = "books"
OUTBOX = "outbox_event"
TABLES = """
create table if not exists author (
  id uuid primary key, name text not null, country text check (country ~ '^[A-Z]{2}$'), born date,
  pen_names text[] not null default '{}', updated_at timestamptz not null default clock_timestamp()
);
create table if not exists book (
  id uuid primary key, author_id uuid not null references author, title text not null, subtitle text,
  tags text[] not null default '{}', price numeric(12, 2) not null, published_on date,
  status text not null check (status in ('AVAILABLE', 'LENT', 'LOST')), pages integer,
  updated_at timestamptz not null default clock_timestamp()
);
create index if not exists book_author_id on book (author_id);
"""


@dataclass
class Author:
    """Fields of an author that a request sets."""

    name: str
    country: str | None = None
    born: date | None = None
    pen_names: list[str] = field(default_factory=list)


@dataclass
class Book:
    """Fields of a book that a request sets."""

    title: str
    price: Decimal
    subtitle: str | None = None
    tags: list[str] = field(default_factory=list)
    published_on: date | None = None
    status: str = "AVAILABLE"
    pages: int | None = None


def connect(dsn: str) -> Connection:
    """Open a connection to the schema of the service, whose rows are dictionaries, as `emit` accepts them."""
    return psycopg.connect(dsn, row_factory=dict_row, options=f"-c search_path={SCHEMA}")
