#!/usr/bin/env python3
"""Events per second of the strategies of the receiving library, compared with the same handler without deduplication.

See docs/performance.md, "Costs of the ways to receive". Settings: EVENTS (default 30000), ROUNDS (3), BATCHES
("100,500"), ONLY (names of variants, separated by commas).
"""

from __future__ import annotations

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

from outbox_kit.receiving import Handlers, Receiver

EVENTS = int(os.environ.get("EVENTS") or 30_000)
ROUNDS = int(os.environ.get("ROUNDS") or 3)
BATCHES = tuple(int(size) for size in (os.environ.get("BATCHES") or "100,500").split(","))
ONLY = tuple(name for name in os.environ.get("ONLY", "").split(",") if name)
LIMIT_S = 300
Samples = dict[tuple[str, int], list[float]]
"""Events per second of each round, by variant and batch size."""


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    chosen = [variant for variant in VARIANTS if not ONLY or variant.name in ONLY]
    samples: Samples = defaultdict(list)
    with running_service(EVENTS) as service:
        for round_number in range(-1, ROUNDS):  # the first round warms up
            order = chosen if round_number % 2 else chosen[::-1]
            for batch in BATCHES:
                for variant in order:
                    rate = measure(service, variant, batch)
                    print_progress(f"round {round_number + 1}, batch {batch}: {variant.name} {rate:,.0f} events/s")
                    if round_number >= 0:
                        samples[variant.name, batch].append(rate)
    report(chosen, samples, machine_info)
    return 0


def measure(service: Service, variant: Variant, batch: int) -> float:
    """Let a new group receive all events; return the events per second from the first to the last batch.

    Raises RuntimeError if the effects are not those of each event once.
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


def report(chosen: list[Variant], samples: Samples, machine_info: dict[str, object]) -> None:
    """Publish rates and ratios."""
    measures = {f"{name}_{batch}": spread(rates, 0) for (name, batch), rates in samples.items()}
    bounds = ratios(chosen, samples)
    content = document(
        machine=machine_info,
        samples={f"{name}_{batch}": rates for (name, batch), rates in samples.items()},
        measures=measures,
        ratios={name: ratio for (name, _), ratio in bounds.items()},
        values={},
        events=EVENTS,
        rounds=ROUNDS,
    )
    limits = [Bound(name, ratio, bound, bound) for (name, bound), ratio in bounds.items() if bound is not None]
    publish("receiving", content, table(chosen, samples) + bound_table(limits))


def ratios(chosen: list[Variant], samples: Samples) -> dict[tuple[str, float | None], float]:
    """Return the median of the rounds' ratios, by their name and lower limit."""
    return {
        (f"{variant.name}_vs_{variant.baseline}_{batch}", variant.bound): ratio
        for variant in chosen
        for batch in BATCHES
        if (ratio := ratio_of(variant, batch, samples)) is not None
    }


def ratio_of(variant: Variant, batch: int, samples: Samples) -> float | None:
    """Return the median of the ratios to the baseline in the same round; None for a baseline."""
    pairs = zip(samples[variant.name, batch], samples[variant.baseline, batch], strict=False)
    values = [rate / baseline for rate, baseline in pairs]
    return statistics.median(values) if values and variant.name != variant.baseline else None


def table(chosen: list[Variant], samples: Samples) -> str:
    """Return the table of the documentation."""
    rows = []
    for variant in chosen:
        for batch in BATCHES:
            rates, ratio = samples[variant.name, batch], ratio_of(variant, batch, samples)
            figures = [f"{number:,.0f}" for number in (statistics.median(rates), min(rates), max(rates))]
            rows.append([variant.name, str(batch), *figures, "" if ratio is None else f"{ratio:.2f}"])
    return markdown(["variant", "batch", "events/s", "min", "max", "of same handler"], rows)


if __name__ == "__main__":
    sys.exit(main())
