"""Structure of build/bench/NAME.json: the keys, and the names of the ratios and values that scripts read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import latency, latest_state, plan, report, smt, source
from tests.benchmarks.materialize import batches, cold_process
from tests.benchmarks.materialize.cold_process import ColdRun
from tests.benchmarks.sending import run as sending
from tests.benchmarks.source_drain import Drain

MACHINE = {"cpus": 2, "load": 0.0, "python": "3"}
LEADING_KEYS = ["machine", "samples", "measures", "ratios", "values"]


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "REPOSITORY", tmp_path)
    monkeypatch.delenv("DOCS", raising=False)
    return tmp_path


def read_report(repository: Path, name: str) -> dict[str, Any]:
    document = json.loads((repository / "build" / "bench" / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    assert list(document)[: len(LEADING_KEYS)] == LEADING_KEYS
    assert all(isinstance(rounds, list) for rounds in document["samples"].values())
    assert set(document["measures"]) <= set(document["samples"])
    return document


def jmh(case: smt.Case, nanoseconds: float) -> dict[str, Any]:
    """Return one result in JMH's JSON format."""
    metric = {"rawData": [[nanoseconds]]}
    secondary = {"processorNanos": metric, "gc.alloc.rate.norm": {"rawData": [[100.0]]}}
    names = {"vmName": "JVM", "vmVersion": "17"}
    return {"params": {"run": case.run}, "primaryMetric": metric, "secondaryMetrics": secondary, **names}


def test_report_of_the_transforms(repository: Path) -> None:
    slower = {"router_avro300": 2.0, "eventrouter_avro300": 8.0}
    smt._report([[jmh(case, slower.get(case.name, 4.0)) for case in smt.CASES]], dict(MACHINE))
    document = read_report(repository, "smt")
    assert document["ratios"]["avro300_time_vs_eventrouter_avro"] == 0.25
    assert document["ratios"]["avro300_time_vs_eventrouter_string"] == 0.5
    assert document["values"]["router_avro300_ns"] == 2.0
    assert document["values"]["router_avro300_bytes"] == 100.0


def drain_at(rate: float) -> Drain:
    """Return a drain of 1,000 events at a given rate, with 2 s of CPU time of the worker."""
    return Drain(1000, 1000 / rate, 2.0, 1.0, 0.5, from_resume=1.0, bytes_per_value=134)


def test_report_of_the_source_throughput(repository: Path) -> None:
    rates = {"router": 90.0, "router linger.ms=0": 120.0, "eventrouter_avro": 60.0, "eventrouter_string": 80.0}
    samples = {name: [drain_at(rate)] for name, rate in {**rates, "constant_bytes": 100.0, "raw_decode": 240.0}.items()}
    source.report(samples, dict(MACHINE))
    document = read_report(repository, "source")
    assert document["ratios"] == {
        "router_vs_eventrouter_avro": 1.5,
        "router_vs_eventrouter_string": 1.125,
        "router_vs_constant_bytes": 0.9,
        "router_vs_raw_decode": 0.375,
        "best_vs_raw_decode": 0.5,
        "best_vs_eventrouter_avro": 2.0,
    }
    assert document["values"]["router_worker_s_per_million"] == 2000.0


def test_report_of_the_latency(repository: Path) -> None:
    milliseconds = {"router": 10.0, "eventrouter": 20.0, "eventrouter_defaults": 400.0}
    samples = {
        latency.Cell(rate, exactly_once, variant): latency.Samples([[value]], [0.0])
        for variant, value in milliseconds.items()
        for exactly_once in (True, False)
        for rate in latency.RATES
    }
    latency.report(samples, dict(MACHINE))
    document = read_report(repository, "latency")
    assert document["ratios"]["latency_p50_vs_eventrouter"] == 0.5
    assert document["ratios"]["latency_p99_vs_eventrouter_without_eos"] == 0.5
    assert document["ratios"]["latency_p50_vs_eventrouter_defaults"] == 0.025
    assert document["values"]["latency200_p50_ms"] == 10.0
    assert document["values"]["latency200_p99_ms_without_eos"] == 10.0


def test_report_of_the_plan_duration(repository: Path) -> None:
    seconds = {"version": 1.0, "plan": 1.5, "plan_database": 1.25}
    plan._report({name: [plan.Sample(value, value)] for name, value in seconds.items()}, dict(MACHINE))
    document = read_report(repository, "plan")
    assert document["ratios"]["plan_vs_version"] == 1.5
    assert document["values"]["plan_s"] == 1.5


def test_sending_compares_with_plain_inserts_and_a_plain_producer(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = {
        sending.INSERTS: sending.Costs(live=4000.0, statements=3.0),
        sending.PRODUCER: sending.Costs(backlog={1000: [100_000.0, 50_000.0, 200_000.0]}),
        "relay": sending.Costs(1000.0, 4.0, 20.0, 200.0, 40.0, {1000: [5000.0, 5000.0, 5000.0]}),
        "two-phase": sending.Costs(500.0, 4.0, 0.0, 0.0, 0.0),
    }
    sending.report(costs, MACHINE)
    ratios = read_report(repository, "sending")["ratios"]
    assert (ratios["relay_vs_inserts"], ratios["relay_1000_vs_producer"]) == (0.25, 0.05)
    assert ratios["two-phase_vs_inserts"] == 0.125
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| two-phase")]
    assert rows == ["| two-phase | 500 | 0.12 |  |  | 4.0 | 0.0 | 0 | 0 |"]


def test_report_of_the_latest_state(repository: Path) -> None:
    samples = {"receive": [2.0, 4.0, 3.0], "load": [3.0, 8.0, 3.0]}
    latest_state.report(dict(MACHINE), samples, {"keys": 10.0})
    document = read_report(repository, "latest-state")
    assert document["ratios"] == {"load_to_receive": 1.5}
    assert document["measures"]["load"]["s"] == {"median": 3.0, "min": 3.0, "max": 8.0}
    assert document["values"] == {"keys": 10.0}


def test_report_of_small_batches(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {"postgres": 0.5, "delta": 4.0, "iceberg": 2.0, "jdbc-sink": 0.25}
    samples = {f"batch10k_{kind}{size}": [value] for kind, value in seconds.items() for size in ("_1000", "")}
    cpu = {cold_process.WITH_ARCHIVE: 4.0, cold_process.FIRST_COMPILER: 8.0, cold_process.ALL_COMPILERS: 16.0}
    cold = {name: [ColdRun(10, 3.0, 4.0, seconds, 0.5, 0.1)] for name, seconds in cpu.items()}
    batches.report(samples, cold, dict(MACHINE))
    document = read_report(repository, "batches")
    assert document["ratios"] == {
        "batch10k_postgres_vs_jdbc_sink": 2.0,
        "cold_cpu_vs_default": 0.5,
        "cold_cpu_with_archive_vs_default": 0.25,
    }
    assert document["values"]["batch10k_delta_s"] == 4.0
    assert "| all compilers | 4.0 | 16.0 |" in capsys.readouterr().out
