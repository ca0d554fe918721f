"""Compares autovacuum settings for the table of processed events: size, dead rows and expiry over simulated days.

Each day inserts DAY_ROWS ids and expires the ids of the day KEEP_DAYS ago. Then it waits until autovacuum has
done what the settings require. Autovacuum looks for tables to vacuum every second instead of every minute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString, TypeAlias, cast
from uuid import uuid4

import psycopg
from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.report import markdown

from outbox_events.receiving.strategies.processed_retention import expire
from outbox_events.waiting import Observation, wait_for

Connection: TypeAlias = psycopg.Connection[Any]
DAY_ROWS, KEEP_DAYS, DAYS = 20_000, 7, 14
VACUUM_S = 120
DELETED, INSERTED = "autovacuum_vacuum_scale_factor", "autovacuum_vacuum_insert_scale_factor"
SETTINGS = {
    "vacuum_scale_factor 0.2 (default)": f"{DELETED} = 0.2",
    "vacuum_scale_factor 0.05": f"{DELETED} = 0.05",
    "vacuum_insert_scale_factor 0.05": f"{DELETED} = 0.2, {INSERTED} = 0.05",
    "both 0.05": f"{DELETED} = 0.05, {INSERTED} = 0.05",
    "no autovacuum": "autovacuum_enabled = off",
}
INSERT = """
    insert into {table} (consumer_group, event_id, processed_at)
    select 'bench', gen_random_uuid()::text, '{day}'::timestamptz from generate_series(1, {rows})"""
COUNTS = """
    select n_dead_tup, n_ins_since_vacuum, vacuum_count + autovacuum_count, reltuples
    from pg_stat_all_tables join pg_class on oid = relid where relid = %s::regclass"""
LIMITS = """
    select coalesce((select option_value from pg_options_to_table(reloptions) where option_name = name), setting)
    from pg_class, pg_settings where oid = %s::regclass and name = %s"""
LEAVES = """
    select relid::regclass::text from pg_partition_tree(%(table)s::regclass) where isleaf
    union select %(table)s::text"""


@dataclass
class Result:
    """Bytes per kept id after the last day, mean share of dead rows after `expire`, vacuums, and seconds per day."""

    name: str
    size: float
    dead: float
    vacuums: int
    expire_s: float


def measure(dsn: str, ddl: Callable[[str], str]) -> list[Result]:
    """Measure the settings one after the other."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        execute(connection, "alter system set autovacuum_naptime = '1s'; select pg_reload_conf()")
        results = []
        for name, setting in SETTINGS.items():
            table = f"public.t{uuid4().hex[:8]}"
            execute(connection, ddl(table))
            execute(connection, f"alter table {table} set ({setting})")
            results.append(_measure(connection, name, table))
            print_progress(str(results[-1]))
            execute(connection, f"drop table {table}")
        execute(connection, "alter system reset autovacuum_naptime; select pg_reload_conf()")
    return results


def _measure(connection: Connection, name: str, table: str) -> Result:
    now: datetime = connection.execute("select now()").fetchall()[0][0]
    first_day, dead, seconds = now - timedelta(days=1000), [], []
    for day in range(DAYS + KEEP_DAYS):
        time_of_day = first_day + timedelta(days=day)
        execute(connection, INSERT.format(table=table, day=time_of_day.isoformat(), rows=DAY_ROWS))
        if day >= KEEP_DAYS:
            started = time.perf_counter()
            keep = now - time_of_day + timedelta(days=KEEP_DAYS - 0.5)
            assert expire(connection, keep=keep, table=table) == DAY_ROWS
            seconds.append(time.perf_counter() - started)
            dead.append(_counts(connection, table)[0] / (KEEP_DAYS * DAY_ROWS))
        _wait_for_autovacuum(connection, table)
    vacuums = int(_counts(connection, table)[2])
    size = size_of(connection, table) / (KEEP_DAYS * DAY_ROWS)
    return Result(name, size, statistics.mean(dead), vacuums, statistics.median(seconds))


def _wait_for_autovacuum(connection: Connection, table: str) -> None:
    """Wait until the table no longer exceeds autovacuum's thresholds."""

    def limit(kind: str, rows: float) -> float:
        threshold, factor = (
            float(connection.execute(LIMITS, [table, f"autovacuum_{kind}_{name}"]).fetchall()[0][0])
            for name in ("threshold", "scale_factor")
        )
        return threshold + factor * max(rows, 0)

    def poll() -> Observation[bool]:
        dead, inserted, _, rows = _counts(connection, table)
        is_due = dead > limit("vacuum", rows) or inserted > limit("vacuum_insert", rows)
        return Observation(None if is_due else True, f"{dead} dead rows, {inserted} inserted")

    options = connection.execute("select reloptions from pg_class where oid = %s::regclass", [table]).fetchall()[0][0]
    if "autovacuum_enabled=off" not in (options or []):
        wait_for(f"vacuum of {table}", poll, seconds=VACUUM_S, interval=0.1)


def _counts(connection: Connection, table: str) -> tuple[float, float, float, float]:
    """Return the numbers of dead rows, rows inserted since the last vacuum, vacuums, and estimated rows."""
    connection.execute("select pg_stat_force_next_flush()")
    found: tuple[float, float, float, float] = connection.execute(COUNTS, [table]).fetchall()[0]
    return found


def size_of(connection: Connection, table: str) -> float:
    """Return the bytes of a table with its partitions and indexes."""
    size = "select sum(pg_total_relation_size(leaf::regclass)) from ({}) as leaves (leaf)"
    query = cast(LiteralString, size.format(LEAVES))
    return float(connection.execute(query, {"table": table}).fetchall()[0][0])


def execute(connection: Connection, statement: str) -> None:
    """Execute statements of the benchmark, one by one."""
    for part in filter(str.strip, statement.split(";")):
        connection.execute(cast(LiteralString, part))


def table(results: list[Result]) -> str:
    """Return the Markdown table."""
    rows = [
        [result.name, f"{result.size:,.0f}", f"{result.dead:.2f}", str(result.vacuums), f"{result.expire_s:.2f}"]
        for result in results
    ]
    return markdown(["autovacuum", "bytes per kept id", "dead rows per kept id", "vacuums", "expire s"], rows)
