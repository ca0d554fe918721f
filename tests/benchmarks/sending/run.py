#!/usr/bin/env python3
"""Costs of the ways to send: throughput with and without a backlog, statements, and growth of tables.

Uses the ways and the stack of the drill (see docs/performance.md, "Costs of the ways to send"). Settings: WAYS
(names, separated by commas), BACKLOGS (numbers of rows, default 100000), IDLE_S and LIVE_S.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, dataclass, field

from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.report import document, machine, markdown, publish
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
COUNTED_RATE = 200
SETTLE_S = 3
INSERTS, PRODUCER = "plain inserts", "plain producer"


@dataclass
class Costs:
    """Costs of one way. Rates are in events per second (`backlog`: by number of rows), growth is in bytes per event."""

    live: float = 0
    statements: float | None = None
    idle_statements: float | None = None
    growth: float | None = None
    growth_after_vacuum: float | None = None
    backlog: dict[int, float] = field(default_factory=dict)


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    with sending_stack(print_progress) as drill:
        with drill.connect_to_database() as connection:
            accounts.prepare(connection, load.ACCOUNTS)
        costs = {INSERTS: inserts(drill), PRODUCER: producer(drill)}
        for name in WAYS.split(","):
            costs[name] = measure(drill, way_named(name))
            print_progress(f"{name}: {costs[name]}")
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


def producer(drill: DrillStack) -> Costs:
    """Measure a producer that sends records of the same events, as many as there are in each backlog."""
    costs = Costs()
    for rows in BACKLOGS:
        topic = f"bench-producer-{rows}"
        KafkaClient(drill.kafka).create(topic, partitions=PARTITIONS, replication_factor=1, config={})
        with Arrivals(drill.kafka, topic) as arrivals:
            load.produce(drill.kafka, topic, rows)
            costs.backlog[rows] = arrivals.rate(rows)
    return costs


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
    if issubclass(way, PipelineWay):
        costs.backlog = {rows: drain(drill, way, f"{cell}_{rows}", rows) for rows in BACKLOGS}
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
    )
    publish("sending", content, table(costs))


def ratios(costs: dict[str, Costs]) -> dict[str, float]:
    """Return the ratios by name."""
    live = {live_ratio(name): cost.live / costs[INSERTS].live for name, cost in costs.items() if cost.live}
    drained = {
        backlog_ratio(name, rows): rate / costs[PRODUCER].backlog[rows]
        for name, cost in costs.items()
        for rows, rate in cost.backlog.items()
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
            rate, ratio = cost.backlog.get(size), by_name.get(backlog_ratio(name, size))
            figures += [_text(rate, ",.0f"), _text(ratio, ".2f")]
        figures += [_text(cost.statements, ".1f"), _text(cost.idle_statements, ".1f")]
        figures += [_text(cost.growth, ",.0f"), _text(cost.growth_after_vacuum, ",.0f")]
        rows.append([name, *figures])
    return markdown(heading, rows)


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
