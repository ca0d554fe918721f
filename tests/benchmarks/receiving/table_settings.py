#!/usr/bin/env python3
"""Compares layouts and settings of the table of processed events: rate of concurrent claims, size, removal of old ids.

Settings: ROWS (old ids in each table, default 500000), SECONDS (of each sample, 4), ROUNDS (2), ONLY (layouts),
SESSIONS (8).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import LiteralString, cast
from uuid import uuid4

import psycopg
from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.receiving import vacuum_settings
from tests.benchmarks.receiving.vacuum_settings import Connection, execute, size_of
from tests.benchmarks.report import document, machine, markdown, publish, spread
from tests.conftest import make_project

from outbox_events import processed_table
from outbox_events.receiving.strategies.processed_retention import expire
from outbox_kit.stack import Stack

ROWS = int(os.environ.get("ROWS") or 500_000)
SECONDS = float(os.environ.get("SECONDS") or 4)
ROUNDS = int(os.environ.get("ROUNDS") or 2)
ONLY = tuple(name for name in os.environ.get("ONLY", "").split(",") if name)
SESSIONS = int(os.environ.get("SESSIONS") or 8)
BATCH, KEEP_DAYS, OLD_DAYS = 100, 7, 10
CLAIM = """
    insert into {table} (consumer_group, event_id) select 'bench', id from unnest(%s::text[]) id order by id
    on conflict do nothing returning event_id"""
FILL = """
    insert into {table} (consumer_group, event_id, processed_at)
    select 'bench', gen_random_uuid()::text, now() - interval '1 day' * (8 + n % 10)
    from generate_series(0, {rows} - 1) n"""
DAY_CLAIM = CLAIM.replace("event_id) select", "event_id, day) select").replace("id from", "id, current_date from")
# The key contains the day, so only a query finds an id of an earlier day, and it does not see concurrent claims.
ALL_DAYS_CLAIM = DAY_CLAIM.replace(
    " order by", " where not exists (select from {table} where consumer_group = 'bench' and event_id = id) order by"
)
DAY_FILL = FILL.replace("processed_at)", "processed_at, day)").replace(
    "from gen", ", current_date - 8 - n % 10 from gen"
)


@dataclass(frozen=True)
class Layout:
    """DDL of a table, its statements, and how old ids are removed. `{table}` is the name."""

    name: str
    ddl: Callable[[str], str]
    claim: str = CLAIM
    fill: str = FILL
    is_by_day: bool = False


def created(shards: int = 1, more: str = "") -> Callable[[str], str]:
    """Return the DDL of the library and one additional statement."""
    return lambda table: (
        f"{processed_table.create_table_sql(table, shards=shards).as_string()};" + more.format(table=table)
    )


def by_day(table: str) -> str:
    """Return the DDL of a table with one partition for each day that is kept, and for the old days."""
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=number) for number in range(KEEP_DAYS + 1 + OLD_DAYS)]
    parts = [
        f"create table {table}_{number} partition of {table} for values from ('{day}') to ('{day + timedelta(days=1)}')"
        for number, day in enumerate(days)
    ]
    columns = (
        "consumer_group text not null, event_id text not null, day date not null, "
        "processed_at timestamptz not null default now(), response bytea"
    )
    key = "primary key (event_id, consumer_group, day)"
    return "; ".join([f"create table {table} ({columns}, {key}) partition by range (day)", *parts])


LAYOUTS = (
    Layout("one table", created()),
    Layout(
        "one table (fillfactor 70)", lambda table: created()(table).replace("group))", "group) with (fillfactor = 70))")
    ),
    Layout("one table (index on processed_at)", created(more="create index on {table} (processed_at)")),
    Layout("8 shards", created(8)),
    Layout("partition per day (ids of one day)", by_day, DAY_CLAIM, DAY_FILL, is_by_day=True),
    Layout("partition per day (all days searched)", by_day, ALL_DAYS_CLAIM, DAY_FILL, is_by_day=True),
)


@dataclass
class Result:
    """Ids per second of one sample, bytes per id, seconds to remove the old ids, and seconds to vacuum."""

    rate: float
    size: float
    expire_s: float
    vacuum_s: float


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info, results = machine(), defaultdict[str, list[Result]](list)
    chosen = [layout for layout in LAYOUTS if not ONLY or layout.name in ONLY]
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        stack = Stack(make_project(Path(folder) / "project"))
        try:
            dsn = stack.up(print_progress, services=["postgres"]).postgres
            vacuums = [] if ONLY else vacuum_settings.measure(dsn, created())
            for round_number in range(ROUNDS):
                for layout in chosen if round_number % 2 else chosen[::-1]:
                    results[layout.name].append(measure(dsn, layout))
                    print_progress(f"{layout.name}: {results[layout.name][-1]}")
        finally:
            stack.down(print_progress, purge=True)
    report({layout.name: results[layout.name] for layout in chosen}, vacuums, machine_info)
    return 0


def measure(dsn: str, layout: Layout) -> Result:
    """Fill a table with old ids, claim new ids in concurrent sessions, and remove the old ids."""
    table = f"public.t{uuid4().hex[:8]}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        execute(connection, layout.ddl(table))
        execute(connection, layout.fill.format(table=table, rows=ROWS))
        execute(connection, f"vacuum analyze {table}")
        execute(connection, "checkpoint")
        statement = layout.claim.format(table=table)
        with ThreadPoolExecutor(SESSIONS) as pool:
            counts = list(pool.map(lambda _: claims(dsn, statement), range(SESSIONS)))
        bytes_per_id = size_of(connection, table) / (ROWS + sum(counts))
        started = time.perf_counter()
        remove_old(connection, layout, table)
        expired = time.perf_counter()
        execute(connection, f"vacuum {table}")
        vacuumed = time.perf_counter()
        assert connection.execute(cast(LiteralString, f"select count(*) from {table}")).fetchall() == [(sum(counts),)]
        execute(connection, f"drop table {table}")
    return Result(sum(counts) / SECONDS, bytes_per_id, expired - started, vacuumed - expired)


def remove_old(connection: Connection, layout: Layout, table: str) -> None:
    """Delete the ids that are older than KEEP_DAYS, or drop their partitions."""
    if layout.is_by_day:
        old = range(KEEP_DAYS + 1, KEEP_DAYS + 1 + OLD_DAYS)
        execute(connection, "; ".join(f"drop table {table}_{number}" for number in old))
    else:
        expire(connection, keep=timedelta(days=KEEP_DAYS), table=table)


def claims(dsn: str, statement: str) -> int:
    """Claim batches of new ids for SECONDS, with one transaction per batch. Return the number of ids."""
    count, end = 0, time.monotonic() + SECONDS
    with psycopg.connect(dsn) as connection:
        while time.monotonic() < end:
            ids = [str(uuid4()) for _ in range(BATCH)]
            count += len(connection.execute(cast(LiteralString, statement), [ids]).fetchall())
            connection.commit()
    return count


def report(
    results: dict[str, list[Result]], vacuums: list[vacuum_settings.Result], machine_info: dict[str, object]
) -> None:
    """Publish the medians."""
    measures = {
        name: {key: spread(getattr(sample, key) for sample in samples) for key in Result.__annotations__}
        for name, samples in results.items()
    }
    content = document(
        machine=machine_info,
        samples={name: [vars(sample) for sample in samples] for name, samples in results.items()},
        measures=measures,
        ratios={},
        values={},
        rows=ROWS,
        sessions=SESSIONS,
        vacuums=[vars(result) for result in vacuums],
    )
    rows = []
    for name, by_key in measures.items():
        figures = [by_key[key]["median"] for key in ("rate", "size", "expire_s", "vacuum_s")]
        rows.append([name, f"{figures[0]:,.0f}", f"{figures[1]:,.0f}", f"{figures[2]:.2f}", f"{figures[3]:.2f}"])
    tables = [markdown(["layout", "ids/s", "bytes per id", "expire s", "vacuum s"], rows)]
    tables += [vacuum_settings.table(vacuums)] if vacuums else []
    publish("receiving-table", content, "\n\n".join(tables))


if __name__ == "__main__":
    sys.exit(main())
