"""Samples and report of the materialization benchmark."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.benchmarks.materialize.cold_process import ColdRun
from tests.benchmarks.report import Bound, bound_table, document, markdown, publish

# (ratio, variant, reference, must, goal)
RATES = (
    ("postgres_vs_read", "postgres", "read", 0.40, 0.55),
    ("iceberg_vs_read", "iceberg", "read", 0.45, 0.60),
    ("delta_vs_read", "delta", "read", 0.42, 0.55),
    ("stale_replay_vs_read", "postgres_stale_replay", "read", 0.38, 0.55),
    ("postgres_vs_jdbc_sink", "postgres", "jdbc-sink", 6.0, 10.0),
    ("postgres_vs_naive", "postgres", "naive", 2.0, 2.0),
)
MEMORY_GB = 2.0


@dataclass(frozen=True)
class Sample:
    """One run: wall-clock seconds, and CPU seconds of Spark's JVM (0: not measured)."""

    seconds: float
    processor: float


@dataclass
class Results:
    """All samples of a run of the benchmark."""

    machine: dict[str, Any]
    events: int
    rounds: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows of the table by variant. All numbers must be equal."""
    peaks: list[ColdRun] = field(default_factory=list)

    def add(self, name: str, sample: Sample) -> None:
        self.samples.setdefault(name, []).append(sample)

    def check_row_count(self, name: str, rows: int) -> None:
        """Record the number of rows of a table. Raises RuntimeError if the tables of two variants differ."""
        self.rows[name] = rows
        if len(set(self.rows.values())) > 1:
            raise RuntimeError(f"the tables have different numbers of rows: {self.rows}")

    def rate(self, name: str) -> float:
        """Return the events per second of the median run."""
        return self.events / statistics.median(sample.seconds for sample in self.samples[name])

    @property
    def bounds(self) -> list[Bound]:
        """Return the ratios of rates between the variants that were run."""
        return [
            Bound(name, self.rate(variant) / self.rate(reference), must, goal)
            for name, variant, reference, must, goal in RATES
            if variant in self.samples and reference in self.samples
        ]

    @property
    def limits(self) -> list[Bound]:
        """Return the bound of the peak memory in GB, if it was measured."""
        if not self.peaks:
            return []
        largest = max(self.peaks, key=lambda peak: peak.records)
        return [Bound("driver_peak_gb", largest.gb, MEMORY_GB, MEMORY_GB, at_most=True)]


def publish_results(results: Results) -> None:
    """Print the tables and write build/bench/materialize.json."""
    content = document(
        machine=results.machine,
        samples={name: [asdict(sample) for sample in samples] for name, samples in results.samples.items()},
        measures={name: _measure(results, name) for name in results.samples},
        ratios={bound.name: bound.ratio for bound in results.bounds},
        values={bound.name: bound.ratio for bound in results.limits},
        events=results.events,
        rounds=results.rounds,
        rows=max(results.rows.values(), default=0),
        peaks=[asdict(peak) for peak in results.peaks],
    )
    publish("materialize", content, tables(results))


def tables(results: Results) -> str:
    """Return the tables for the terminal and the documentation."""
    parts = [_rate_table(results)] if results.samples else []
    if results.peaks:
        parts.append(_peak_table(results))
    return "\n\n".join(parts) + bound_table([*results.bounds, *results.limits])


def _measure(results: Results, name: str) -> dict[str, float]:
    actual = results.samples[name]
    seconds = [sample.seconds for sample in actual]
    return {
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "events_per_s": round(results.rate(name)),
        "processor_s": round(statistics.median(sample.processor for sample in actual), 2),
    }


def _rate_table(results: Results) -> str:
    rows = []
    read = results.rate("read") if "read" in results.samples else None
    for name in results.samples:
        measure = _measure(results, name)
        share = f"{results.rate(name) / read:.2f}" if read else ""
        processor = f"{measure['processor_s'] * 1e6 / results.events:.2f}" if measure["processor_s"] else ""
        seconds = [f"{measure[column]:.2f}" for column in ("median_s", "min_s", "max_s")]
        rows.append([name, f"{measure['events_per_s']:,.0f}", share, *seconds, processor])
    return markdown(("variant", "events/s", "of read", "median s", "min", "max", "JVM s/M events"), rows)


def _peak_table(results: Results) -> str:
    rows = [
        [f"{peak.records:,}", f"{peak.seconds:.1f}", f"{peak.jvm_gb:.2f}", f"{peak.python_gb:.2f}", f"{peak.gb:.2f}"]
        for peak in results.peaks
    ]
    return markdown(("events, cold process", "seconds", "JVM GB", "Python GB", "together"), rows)
