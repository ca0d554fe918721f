"""Outbox rows for the benchmarks: books of the worked example with payloads of equal size."""

from __future__ import annotations

from typing import LiteralString

import psycopg

PAYLOAD_BYTES = 302
AGGREGATES = 50_000
LARGEST_TRANSACTION = 50
# No nulls and always two decimals, because EventRouter's expansion omits nulls, and different structures would
# register several schemas.
PAYLOAD: LiteralString = """
create function bench_payload(n bigint) returns jsonb language sql as $$
  select book || jsonb_build_object('title', left(title, 302 - length(book::text) - length(', "title": ""')))
  from (
    select jsonb_build_object(
      'id', bench_key(n), 'author_id', bench_key(n / 7 + 1), 'subtitle', 'Part ' || n % 9,
      'tags', jsonb_build_array('history'), 'price', round(10 + (n % 8999) / 100.0, 2),
      'published_on', (date '1800-01-01' + (n % 80000)::int)::text,
      'status', (array['AVAILABLE', 'LENT', 'LOST'])[1 + n % 3], 'pages', 100 + n % 900,
      'updated_at', '2026-11-20T18:31:38.123456+00:00') as book,
      repeat((array['The Left Hand of Darkness ', 'One Hundred Years of Solitude ', 'Il nome della rosa '])[1 + n % 3],
        6) as title
  ) books $$"""
KEY: LiteralString = """
create function bench_key(n bigint) returns text language sql as $$
  select left(h, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3) || '-a' || substr(h, 18, 3) || '-'
    || right(h, 12) from (select md5(n::text) as h) hashed $$"""
# Transactions of 1 to `largest` rows. All sizes are equally frequent, and their order is the same in each run.
WRITE: LiteralString = """
create procedure bench_write(count bigint, largest int, aggregates bigint) language plpgsql as $$
declare
  written bigint := 0;
  transactions bigint := 0;
  size bigint;
begin
  set local synchronous_commit = off;
  while written < count loop
    size := least(1 + (transactions * 17) % largest, count - written);
    insert into bench_event (aggregate_type, aggregate_id, event_type, payload)
    select 'book', bench_key(n % aggregates), 'book_changed', bench_payload(n % aggregates)
    from generate_series(written + 1, written + size) n;
    written := written + size;
    transactions := transactions + 1;
    commit;
  end loop;
end $$"""


def prepare(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Create the functions that generate the rows."""
    for statement in (KEY, PAYLOAD, WRITE):
        connection.execute(statement)
    row = connection.execute(
        "select min(octet_length(p)), max(octet_length(p)) from (select bench_payload(n)::text p"
        " from generate_series(1, 1000) n) payloads"
    ).fetchone()
    assert row == (PAYLOAD_BYTES, PAYLOAD_BYTES), row


def write(connection: psycopg.Connection[tuple[object, ...]], rows: int) -> None:
    """Write rows in transactions of 1 to LARGEST_TRANSACTION."""
    connection.execute("call bench_write(%s, %s, %s)", [rows, LARGEST_TRANSACTION, AGGREGATES])
    connection.execute("checkpoint")
