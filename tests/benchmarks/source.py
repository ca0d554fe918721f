#!/usr/bin/env python3
"""How fast a backlog drains: OutboxRouter against EventRouter, a transform that does nothing, and the slot itself.

Every variant reads a copy of one slot, so the same WAL, one at a time and in turn. See docs/performance.md, "The source
connector", for what is measured and how. ROUNDS, WARM_UP_ROUNDS, ROWS, VARIANTS (names, separated by semicolons) and
TRY (settings of one more OutboxRouter, see variants.tried) can be set.
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import asdict

from tests.benchmarks import backlog, variants
from tests.benchmarks.report import Bound, bound_table, machine, markdown, publish
from tests.benchmarks.source_drain import Drain, drain
from tests.benchmarks.source_raw import method, raw
from tests.benchmarks.stage import PLUGINS, Stage, say, stage
from tests.benchmarks.variants import Variant

ROUNDS = int(os.environ.get("ROUNDS", "3"))
# The compiler took a fifth of the worker's processor time in a first round, a twentieth in a fourth.
WARM_UP_ROUNDS = int(os.environ.get("WARM_UP_ROUNDS", "3"))
ROWS = int(os.environ.get("ROWS", "500000"))
BASE = "bench_base"
RAW = "raw decode"
VARIANTS: dict[str, Variant] = {
    "OutboxRouter": variants.outbox_router,
    "EventRouter, string": variants.event_router,
    "EventRouter, string, one header": variants.event_router_bare,
    "EventRouter, expand, Avro": variants.event_router_avro,
    "constant": variants.constant,
    **variants.tried(os.environ.get("TRY", "")),
}
BOUNDS = (
    ("EventRouter, expand, Avro", 1.4, 1.6),
    ("EventRouter, string", 0.90, 1.0),
    ("constant", 0.95, 0.95),
    (RAW, 0.55, 0.65),
)


def main() -> int:
    """Measure, print, write."""
    before, names = machine(), [*chosen(), RAW]
    with stage(plugins=(PLUGINS,)) as place:
        end = write_backlog(place)
        samples = measure(place, names, end)
    report(samples, before)
    return 0


def write_backlog(place: Stage) -> str:
    """Make the slot that all others are copies of, then write the rows; returns where they end in the WAL."""
    with place.database() as connection:
        backlog.prepare(connection)
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [BASE])
        say(f"writing {ROWS} rows")
        backlog.write(connection, ROWS)
        row = connection.execute("select pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def measure(place: Stage, names: list[str], end: str) -> dict[str, list[Drain]]:
    """Variants in turn, each round from another one on; what counts begins when the worker is warm."""
    samples: dict[str, list[Drain]] = {name: [] for name in names}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            unique = f"bench-{number}-{names.index(name)}"
            if name == RAW:
                sample = raw(place, unique, BASE, ROWS, end)
            else:
                sample = drain(place, unique, VARIANTS[name], BASE, ROWS)
            say(f"round {number}, {name}: {sample.rate:,.0f} events/s, {sample.worker_processor:.1f} s of the worker")
            if number >= WARM_UP_ROUNDS:
                samples[name].append(sample)
    return samples


def chosen() -> list[str]:
    """The variants to run; all where VARIANTS is not set."""
    names = [name.strip() for name in os.environ.get("VARIANTS", "").split(";") if name.strip()]
    if unknown := set(names) - set(VARIANTS):
        raise SystemExit(f"VARIANTS: {', '.join(sorted(unknown))} is none of: {'; '.join(VARIANTS)}")
    return names or list(VARIANTS)


def report(samples: dict[str, list[Drain]], before: dict[str, object]) -> None:
    """The median of each figure by itself."""
    rates = {name: statistics.median(sample.rate for sample in found) for name, found in samples.items()}
    rows = [table_row(name, found) for name, found in samples.items()]
    bounds = [
        Bound(f"OutboxRouter / {name}", rates["OutboxRouter"] / rates[name], must, goal)
        for name, must, goal in BOUNDS
        if name in rates and "OutboxRouter" in rates
    ]
    heading = ("variant", "events/s", "least", "most", "worker s/M", "broker s/M", "PostgreSQL s/M", "bytes")
    tables = markdown(heading, rows) + bound_table(bounds)
    document = {
        "machine": before,
        "rows": ROWS,
        "rounds": ROUNDS,
        "warm_up_rounds": WARM_UP_ROUNDS,
        "raw": method(),
        "samples": {
            name: [{**asdict(sample), "rate": sample.rate} for sample in found] for name, found in samples.items()
        },
        "values": {f"{name} events/s": rate for name, rate in rates.items()},
        "ratios": {bound.name: bound.ratio for bound in bounds},
    }
    publish("source", document, tables)


def table_row(name: str, found: list[Drain]) -> list[str]:
    """One variant: events per second, then seconds of the processor per million events."""
    rates = [sample.rate for sample in found]

    def per_million(seconds: list[float]) -> str:
        each = [used * 1e6 / sample.events for used, sample in zip(seconds, found, strict=True)]
        return f"{statistics.median(each):.1f}" if any(each) else ""

    return [
        f"{name} ({method()})" if name == RAW else name,
        *(f"{value:,.0f}" for value in (statistics.median(rates), min(rates), max(rates))),
        per_million([sample.worker_processor for sample in found]),
        per_million([sample.broker_processor for sample in found]),
        per_million([sample.sender_processor for sample in found]),
        f"{statistics.median(sample.bytes_per_value for sample in found):.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
