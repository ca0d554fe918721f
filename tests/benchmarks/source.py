#!/usr/bin/env python3
"""Throughput on a backlog: OutboxRouter, EventRouter, a transform that does nothing, and the slot without a connector.

Every variant in turn reads a copy of the same slot (see docs/performance-connector.md, "The source
connector"). Settings: ROUNDS, WARM_UP_ROUNDS, ROWS, VARIANTS (names, separated by semicolons) and TRY (additional
OutboxRouter settings, see variants.router_variants).
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import asdict
from typing import Any

from tests.benchmarks import backlog, variants
from tests.benchmarks.benchmark_stack import PLUGINS, BenchmarkStack, benchmark_stack, print_progress
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish, spread
from tests.benchmarks.source_drain import Drain, drain
from tests.benchmarks.source_raw import method, raw
from tests.benchmarks.variants import Variant

ROUNDS = int(os.environ.get("ROUNDS", "3"))
# JIT compilation took 20 % of the worker's CPU time in the first round, and 5 % in the fourth.
WARM_UP_ROUNDS = int(os.environ.get("WARM_UP_ROUNDS", "3"))
ROWS = int(os.environ.get("ROWS", "500000"))
BASE = "bench_base"
RAW = "raw_decode"
VARIANTS: dict[str, Variant] = {
    "router": variants.outbox_router,
    "eventrouter_string": variants.event_router,
    "eventrouter_string_one_header": variants.event_router_one_header,
    "eventrouter_avro": variants.event_router_avro,
    "constant_bytes": variants.constant,
    **variants.router_variants(os.environ.get("TRY", "")),
}
LABELS = {
    "router": "OutboxRouter",
    "eventrouter_string": "EventRouter, string",
    "eventrouter_string_one_header": "EventRouter, string, one header",
    "eventrouter_avro": "EventRouter, expand, Avro",
    "constant_bytes": "constant",
    RAW: "raw decode",
}
# Ratio name, reference variant, must, goal. `best` is the fastest OutboxRouter, including the variants that TRY adds.
BOUNDS = (
    ("router_vs_eventrouter_avro", "eventrouter_avro", 1.4, 1.6),
    ("router_vs_eventrouter_string", "eventrouter_string", 0.90, 1.0),
    ("router_vs_constant_bytes", "constant_bytes", 0.95, 0.95),
    ("router_vs_raw_decode", RAW, 0.55, 0.65),
    ("best_vs_raw_decode", RAW, 0.55, 0.65),
    ("best_vs_eventrouter_avro", "eventrouter_avro", 1.4, 1.6),
)
CPU_FIELDS = {"worker": "worker_processor", "broker": "broker_processor", "postgres": "sender_processor"}


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info, names = machine(), [*selected_variants(), RAW]
    with benchmark_stack(plugins=(PLUGINS,)) as bench:
        end = write_backlog(bench)
        samples = run_rounds(bench, names, end)
    report(samples, machine_info)
    return 0


def write_backlog(bench: BenchmarkStack) -> str:
    """Create the slot BASE, then write the rows. Return the LSN after the last row."""
    with bench.database() as connection:
        backlog.prepare(connection)
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [BASE])
        print_progress(f"writing {ROWS} rows")
        backlog.write(connection, ROWS)
        row = connection.execute("select pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def run_rounds(bench: BenchmarkStack, names: list[str], end: str) -> dict[str, list[Drain]]:
    """Run the warm-up rounds, then measure the variants in turn. Each round starts with a different variant."""
    samples: dict[str, list[Drain]] = {name: [] for name in names}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            unique = f"bench-{number}-{names.index(name)}"
            if name == RAW:
                sample = raw(bench, unique, BASE, ROWS, end)
            else:
                sample = drain(bench, unique, VARIANTS[name], BASE, ROWS)
            print_progress(
                f"round {number}, {name}: {sample.rate:,.0f} events/s, {sample.worker_processor:.1f} s of the worker"
            )
            if number >= WARM_UP_ROUNDS:
                samples[name].append(sample)
    return samples


def selected_variants() -> list[str]:
    """Return the names of the variants to run, which are all variants unless VARIANTS is set."""
    names = [name.strip() for name in os.environ.get("VARIANTS", "").split(";") if name.strip()]
    if unknown := set(names) - set(VARIANTS):
        raise SystemExit(f"VARIANTS: {', '.join(sorted(unknown))} is not one of: {'; '.join(VARIANTS)}")
    return names or list(VARIANTS)


def report(samples: dict[str, list[Drain]], machine_info: dict[str, object]) -> None:
    """Publish the median of each figure."""
    measures = {name: measure(drains) for name, drains in samples.items()}
    rates = {name: actual["events_per_s"]["median"] for name, actual in measures.items()}
    routers = {name: rate for name, rate in rates.items() if name.split()[0] == "router"}
    compared = {"router": rates.get("router", 0.0), "best": max(routers.values(), default=0.0)}
    bounds = [
        Bound(name, rate / rates[reference], must, goal)
        for name, reference, must, goal in BOUNDS
        if reference in rates and (rate := compared[name.partition("_")[0]])
    ]
    heading = ("variant", "events/s", "min", "max", "worker s/M", "broker s/M", "PostgreSQL s/M", "bytes")
    content = document(
        machine=machine_info,
        samples={
            name: [{**asdict(sample), "rate": sample.rate} for sample in drains] for name, drains in samples.items()
        },
        measures=measures,
        ratios={bound.name: bound.ratio for bound in bounds},
        values={
            f"{name}_{process}_s_per_million": actual[f"{process}_s_per_million"]
            for name, actual in measures.items()
            for process in CPU_FIELDS
        },
        rows=ROWS,
        rounds=ROUNDS,
        warm_up_rounds=WARM_UP_ROUNDS,
        raw=method(),
    )
    rows = [table_row(name, actual) for name, actual in measures.items()]
    publish("source", content, markdown(heading, rows) + bound_table(bounds))


def measure(drains: list[Drain]) -> dict[str, Any]:
    """Return events per second and, by process, CPU seconds per million events."""

    def per_million(process: str) -> float:
        return round(statistics.median(getattr(drain, CPU_FIELDS[process]) * 1e6 / drain.events for drain in drains), 1)

    return {
        "events_per_s": spread((drain.rate for drain in drains), 0),
        **{f"{process}_s_per_million": per_million(process) for process in CPU_FIELDS},
        "bytes_per_value": round(statistics.median(drain.bytes_per_value for drain in drains)),
    }


def table_row(name: str, measure: dict[str, Any]) -> list[str]:
    """Return the row of one variant: events per second, CPU seconds per million events, and bytes."""
    label = LABELS.get(name, name)
    rate = measure["events_per_s"]
    cpu = [measure[f"{process}_s_per_million"] for process in CPU_FIELDS]
    return [
        f"{label} ({method()})" if name == RAW else label,
        *(f"{rate[figure]:,.0f}" for figure in ("median", "min", "max")),
        *(f"{seconds:.1f}" if seconds else "" for seconds in cpu),
        f"{measure['bytes_per_value']}",
    ]


if __name__ == "__main__":
    sys.exit(main())
