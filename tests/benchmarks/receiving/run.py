#!/usr/bin/env python3
"""Events per second of the strategies of the receiving library, compared with the same handler without deduplication.

See docs/performance-services.md, "Costs of the ways to receive". Settings: EVENTS (default 30000), ROUNDS (7), BATCHES
("100,500"), ONLY (names of variants, separated by commas).
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections import defaultdict
from uuid import uuid4

from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.receiving.service import TOPIC, Service, running_service
from tests.benchmarks.receiving.variants import VARIANTS, Variant
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish, spread

from outbox_events import Handlers, Receiver

EVENTS = int(os.environ.get("EVENTS") or 30_000)
ROUNDS = int(os.environ.get("ROUNDS") or 7)
BATCHES = tuple(int(size) for size in (os.environ.get("BATCHES") or "100,500").split(","))
ONLY = tuple(name for name in os.environ.get("ONLY", "").split(",") if name)
LIMIT_S = 300
Samples = dict[tuple[str, int], list[float]]
"""Numbers of the rounds, by variant and batch size."""


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    by_name = {variant.name: variant for variant in VARIANTS}
    pairs = [(by_name[variant.baseline], variant) for variant in VARIANTS if variant.name != variant.baseline]
    pairs = [(baseline, variant) for baseline, variant in pairs if not ONLY or variant.name in ONLY]
    rates: Samples = defaultdict(list)
    ratios: Samples = defaultdict(list)
    with running_service(EVENTS) as service:
        for round_number in range(ROUNDS + 1):
            for batch, (baseline, variant) in itertools.product(BATCHES, pairs):
                # Run the variants in direct succession: the machine's speed changes by over 10 % within minutes.
                order = (baseline, variant) if round_number % 2 else (variant, baseline)
                measured = {each.name: measure(service, each, batch) for each in order}
                shown = ", ".join(f"{name} {rate:,.0f} events/s" for name, rate in measured.items())
                print_progress(f"round {round_number}, batch {batch}: {shown}")
                if round_number:  # the first round warms up
                    ratios[variant.name, batch].append(measured[variant.name] / measured[baseline.name])
                    for name, rate in measured.items():
                        rates[name, batch].append(rate)
    report(rates, ratios, machine_info)
    return 0


def measure(service: Service, variant: Variant, batch: int) -> float:
    """Let a new group receive all events. Return the events per second from the first to the last batch.

    Raises RuntimeError unless each event has had its effect exactly once.
    """
    service.reset()
    group = f"bench-{uuid4().hex[:8]}"
    handlers = Handlers[object]()
    handlers.otherwise(variant.handler)
    strategy = variant.strategy(service, group)
    deadline = time.monotonic() + LIMIT_S
    with Receiver(service.settings(group), [TOPIC], strategy, handlers, batch_size=batch) as receiver:
        while not receiver.poll(0.1):
            check(deadline)
        first, started = receiver.counters.handled, time.perf_counter()
        while receiver.counters.handled < EVENTS:
            receiver.poll(0.1)
            check(deadline)
        seconds = time.perf_counter() - started
    if variant.writes_rows and service.rows() != EVENTS:
        raise RuntimeError(f"{variant.name}: {service.rows()} effects of {EVENTS} events")
    return (EVENTS - first) / seconds


def check(deadline: float) -> None:
    """Raise TimeoutError after the deadline."""
    if time.monotonic() > deadline:
        raise TimeoutError(f"the events were not handled in {LIMIT_S} s")


def report(rates: Samples, ratios: Samples, machine_info: dict[str, object]) -> None:
    """Publish rates and ratios."""
    medians = {place: statistics.median(values) for place, values in ratios.items()}
    variants = [variant for variant in VARIANTS if any((variant.name, batch) in rates for batch in BATCHES)]
    bounds = {
        f"{variant.name}_vs_{variant.baseline}_{batch}": (medians[variant.name, batch], variant.bound)
        for variant in variants
        for batch in BATCHES
        if (variant.name, batch) in medians
    }
    content = document(
        machine=machine_info,
        samples={f"{name}_{batch}": values for (name, batch), values in rates.items()},
        measures={f"{name}_{batch}": spread(values, 0) for (name, batch), values in rates.items()},
        ratios={name: ratio for name, (ratio, _) in bounds.items()},
        values={},
        events=EVENTS,
        rounds=ROUNDS,
    )
    limits = [Bound(name, ratio, bound, bound) for name, (ratio, bound) in bounds.items() if bound is not None]
    publish("receiving", content, table(variants, rates, ratios) + bound_table(limits))


def table(variants: list[Variant], rates: Samples, ratios: Samples) -> str:
    """Return the table of the documentation."""
    rows = []
    for variant in variants:
        for batch in BATCHES:
            measured, compared = rates[variant.name, batch], ratios.get((variant.name, batch), [])
            figures = [f"{number:,.0f}" for number in (statistics.median(measured), min(measured), max(measured))]
            of_baseline = (
                [f"{number:.2f}" for number in (statistics.median(compared), min(compared), max(compared))]
                if compared
                else [""] * 3
            )
            rows.append([variant.name, str(batch), *figures, *of_baseline])
    return markdown(["variant", "batch", "events/s", "min", "max", "of same handler", "min", "max"], rows)


if __name__ == "__main__":
    sys.exit(main())
