#!/usr/bin/env python3
"""Costs of the ways to send: throughput with and without a backlog, statements, and growth of tables.

Uses the ways and the stack of the drill (see docs/performance-services.md, "Costs of the ways to send"). Settings: WAYS
(names, separated by commas), BACKLOGS (numbers of rows, default 100000), ROUNDS, PRODUCER_S, IDLE_S and LIVE_S.

In each round, the plain producer and then each way are measured once with each backlog. The ratio of a way is the
median of the ratios of the rounds, because the speed of the machine changes between rounds. With LIVE_S=0, only the
backlogs are measured.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, dataclass, field
from operator import truediv
from statistics import median

from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish
from tests.benchmarks.sending import load
from tests.benchmarks.sending.meters import Arrivals, Statements, sending_stack, table_bytes, vacuum

from outbox_kit.kafka.client import KafkaClient
from outbox_lab.drill import accounts
from outbox_lab.drill.project import PARTITIONS
from outbox_lab.drill.senders.sender import SenderSettings
from outbox_lab.drill.stack import DrillStack
from outbox_lab.drill.ways.catalogue import way_named
from outbox_lab.drill.ways.pipeline import PipelineWay
from outbox_lab.drill.ways.way import Way

WAYS = os.environ.get("WAYS") or (
    "cdc-exactly-once,cdc,cdc-messages,relay,polling-horizon,"
    "chained-with-store,delivery-proof,two-phase,direct-database-first"
)
BACKLOGS = tuple(int(rows) for rows in os.environ.get("BACKLOGS", "100000").split(",") if rows)
IDLE_S = float(os.environ.get("IDLE_S", "30"))
LIVE_S = float(os.environ.get("LIVE_S", "8"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
PRODUCER_S = float(os.environ.get("PRODUCER_S", "10"))
BOUNDS = {"relay": (0.20, 0.35)}
"""Ratio of the backlog's rate to that of the plain producer that each way must reach, and that is the goal."""
COUNTED_RATE = 200
SETTLE_S = 3
INSERTS, PRODUCER = "plain inserts", "plain producer"


@dataclass
class Costs:
    """Costs of one way. Rates are in events per second, growth is in bytes per event.

    `backlog` maps the number of rows to the rate in each round.
    """

    live: float = 0
    statements: float | None = None
    idle_statements: float | None = None
    growth: float | None = None
    growth_after_vacuum: float | None = None
    backlog: dict[int, list[float]] = field(default_factory=dict)


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    with sending_stack(print_progress) as drill:
        with drill.connect_to_database() as connection:
            accounts.prepare(connection, load.ACCOUNTS)
        costs = {INSERTS: inserts(drill) if LIVE_S else Costs(), PRODUCER: Costs()}
        for name in WAYS.split(","):
            costs[name] = measure(drill, way_named(name)) if LIVE_S else Costs()
            print_progress(f"{name}: {costs[name]}")
        for number in range(ROUNDS):
            measure_backlogs(drill, costs, number)
    report(costs, machine_info)
    return 0


def inserts(drill: DrillStack) -> Costs:
    """Measure the transactions without a way of sending."""
    statements = Statements(drill)
    events = load.write(drill.state.postgres, None, seconds=LIVE_S, rate=COUNTED_RATE)
    per_event = statements.count() / events
    started = time.perf_counter()
    events = load.write(drill.state.postgres, None, seconds=LIVE_S)
    return Costs(live=events / (time.perf_counter() - started), statements=per_event)


def measure_backlogs(drill: DrillStack, costs: dict[str, Costs], number: int) -> None:
    """Measure one round of the plain producer and of all ways that have a backlog."""
    for rows in BACKLOGS:
        costs[PRODUCER].backlog.setdefault(rows, []).append(producer(drill, f"bench-producer-{rows}-{number}"))
        for name in WAYS.split(","):
            way, cell = way_named(name), f"bench_{name.replace('-', '_')}_{rows}_{number}"
            if issubclass(way, PipelineWay):
                costs[name].backlog.setdefault(rows, []).append(drain(drill, way, cell, rows))
                print_progress(f"{name}: {costs[name].backlog}, {PRODUCER}: {costs[PRODUCER].backlog}")


def producer(drill: DrillStack, topic: str) -> float:
    """Return the events per second of a producer that sends records of the same events for PRODUCER_S."""
    KafkaClient(drill.kafka).create(topic, partitions=PARTITIONS, replication_factor=1, config={})
    with Arrivals(drill.kafka, topic) as arrivals:
        return arrivals.rate(load.produce(drill.kafka, topic, PRODUCER_S))


def measure(drill: DrillStack, way: type[Way]) -> Costs:
    """Measure one way when it is idle, at COUNTED_RATE, as fast as possible, and with each backlog."""
    costs, cell = Costs(), f"bench_{way.name.replace('-', '_')}"
    with way(drill, cell).deployed() as deployed, Arrivals(drill.kafka, deployed.topic) as arrivals:
        count_statements(drill, deployed.sender, arrivals, costs)
        vacuum(drill)
        before, seen, started = table_bytes(drill), arrivals.count, time.perf_counter()
        events = load.write(drill.state.postgres, deployed.sender, seconds=LIVE_S)
        costs.live = events / (arrivals.wait(seen + events) - started)
        time.sleep(SETTLE_S)
        costs.growth = (table_bytes(drill) - before) / events
        vacuum(drill)
        costs.growth_after_vacuum = (table_bytes(drill) - before) / events
    return costs


def count_statements(drill: DrillStack, sender: SenderSettings, arrivals: Arrivals, costs: Costs) -> None:
    """Count the statements while nothing is written, and until events written at COUNTED_RATE have arrived."""
    events = load.write(drill.state.postgres, sender, seconds=1, rate=COUNTED_RATE)
    arrivals.wait(events)
    time.sleep(SETTLE_S)
    statements = Statements(drill)
    time.sleep(IDLE_S)
    costs.idle_statements = statements.count() / IDLE_S
    statements = Statements(drill)
    more = load.write(drill.state.postgres, sender, seconds=LIVE_S, rate=COUNTED_RATE)
    arrivals.wait(events + more)
    costs.statements = statements.count() / more


def drain(drill: DrillStack, way: type[PipelineWay], cell: str, rows: int) -> float:
    """Return the events per second that a way delivers from a backlog."""
    with (
        load.with_backlog(way, rows)(drill, cell).deployed() as deployed,
        Arrivals(drill.kafka, deployed.topic) as arrivals,
    ):
        return arrivals.rate(rows)


def report(costs: dict[str, Costs], machine_info: dict[str, object]) -> None:
    """Publish the costs, and the ratio of each rate to that of the plain inserts or the plain producer."""
    content = document(
        machine=machine_info,
        samples={name: [asdict(cost)] for name, cost in costs.items()},
        measures={name: asdict(cost) for name, cost in costs.items()},
        ratios=ratios(costs),
        values={},
        idle_s=IDLE_S,
        live_s=LIVE_S,
        counted_rate=COUNTED_RATE,
        rounds=ROUNDS,
        producer_s=PRODUCER_S,
    )
    publish("sending", content, table(costs) + bound_table(bounds(costs)))


def bounds(costs: dict[str, Costs]) -> list[Bound]:
    """Return the measured ratios that have limits."""
    by_name = ratios(costs)
    names = [(backlog_ratio(way, rows), limits) for way, limits in BOUNDS.items() for rows in BACKLOGS]
    return [Bound(name, by_name[name], *limits) for name, limits in names if name in by_name]


def ratios(costs: dict[str, Costs]) -> dict[str, float]:
    """Return the ratios by name."""
    live = {live_ratio(name): cost.live / costs[INSERTS].live for name, cost in costs.items() if cost.live}
    drained = {
        backlog_ratio(name, rows): median(map(truediv, rates, costs[PRODUCER].backlog[rows]))
        for name, cost in costs.items()
        for rows, rates in cost.backlog.items()
    }
    return live | drained


def live_ratio(name: str) -> str:
    """Return the name of the ratio of the rate without a backlog."""
    return f"{name}_vs_inserts"


def backlog_ratio(name: str, rows: int) -> str:
    """Return the name of the ratio of the rate with a backlog."""
    return f"{name}_{rows}_vs_producer"


def table(costs: dict[str, Costs]) -> str:
    """Return the table of the documentation. The cell of a figure that a way does not have is empty."""
    sizes = list(costs[PRODUCER].backlog)
    backlogs = [entry for size in sizes for entry in (f"backlog {size:,}, events/s", "of producer")]
    heading = ["way", "live, events/s", "of inserts", *backlogs, "statements", "idle/s", "bytes", "vacuumed"]
    by_name, rows = ratios(costs), []
    for name, cost in costs.items():
        figures = [_text(cost.live or None, ",.0f"), _text(by_name.get(live_ratio(name)), ".2f")]
        for size in sizes:
            rate = median(cost.backlog[size]) if size in cost.backlog else None
            ratio = by_name.get(backlog_ratio(name, size))
            figures += [_text(rate, ",.0f"), _text(ratio, ".2f")]
        figures += [_text(cost.statements, ".1f"), _text(cost.idle_statements, ".1f")]
        figures += [_text(cost.growth, ",.0f"), _text(cost.growth_after_vacuum, ",.0f")]
        rows.append([name, *figures])
    return markdown(heading, rows)


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
