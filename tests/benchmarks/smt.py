#!/usr/bin/env python3
"""Time per record in OutboxRouter and in alternatives, measured with JMH.

Renders the connector configs and runs smt/bench, which measures the transforms and the value converter of each (see
docs/performance-connector.md, "The transforms"). Every round runs one fork of every case, so that a change of the
machine's load affects all cases. Ratios are of CPU time, which depends less on the load than
wall-clock time. Settings: ROUNDS, QUICK, ONLY (part of a case's connector/payload).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish, spread
from tests.conftest import REPOSITORY

from outbox_kit.pipeline import Environment, Lock, LockedSchema, Pipeline, render_connector
from outbox_kit.pipeline.avro import fingerprint, read_schema

QUICK = os.environ.get("QUICK", "") not in ("", "0")
ROUNDS = int(os.environ.get("ROUNDS", "1" if QUICK else "4"))
ITERATIONS = ["-w", "1", "-r", "1", "-wi", "4", "-i", "3" if QUICK else "5"]
ONLY = os.environ.get("ONLY", "")

BENCH = REPOSITORY / "build" / "bench"
CONFIGS = BENCH / "smt-connectors"
# The transforms come first, because their versions of shared libraries are newer.
CLASS_PATH = [
    "smt/bench/target/classes",
    "smt/bench/target/lib/*",
    "smt/target/plugin/outbox-smt/*",
    "smt/target/plugin/outbox-avro-converter/*",
    "build/runtime/connect-plugins/debezium-connector-postgres/*",
    "build/runtime/kafka/libs/*",
]
# Without background compilation, load on the machine prolongs the warm-up but does not change the measurement.
JVM = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:-BackgroundCompilation"]
SCHEMAS = {
    "loan": REPOSITORY / "tests" / "benchmarks" / "schemas" / "loan.avsc",
    "book": REPOSITORY / "schemas" / "book.avsc",
    "order": REPOSITORY / "tests" / "benchmarks" / "schemas" / "order.avsc",
}
SIZES = {"LOAN": "100 B", "BOOK": "300 B", "ORDER": "2 KB", "TOMBSTONE": "tombstone"}


@dataclass(frozen=True)
class Case:
    """A connector config with one payload. `name` is the key of the case in the JSON."""

    name: str
    connector: str
    payload: str
    label: str

    @property
    def run(self) -> str:
        """Return the value of the benchmark's parameter."""
        return f"{self.connector}/{self.payload}"


ROUTER, STRING, EXPANDED = "outbox-router", "event-router", "event-router-expanded"
SIZE_NAMES = {"100": "LOAN", "300": "BOOK", "2000": "ORDER"}
CASES = [
    *(Case(f"router_avro{size}", ROUTER, kind, "OutboxRouter, JSON to Avro") for size, kind in SIZE_NAMES.items()),
    Case("router_tombstone", ROUTER, "TOMBSTONE", "OutboxRouter"),
    *(
        Case(f"eventrouter_string{size}", STRING, kind, "EventRouter, string passed through")
        for size, kind in SIZE_NAMES.items()
    ),
    Case("eventrouter_tombstone", STRING, "TOMBSTONE", "EventRouter"),
    Case("eventrouter_string300_one_header", "event-router-least", "BOOK", "EventRouter, string, no header but the id"),
    *(
        Case(f"eventrouter_avro{size}", EXPANDED, kind, "EventRouter, expansion, Avro converter")
        for size, kind in SIZE_NAMES.items()
    ),
    Case("eventrouter_bare_avro300", "event-router-bare", "BOOK", "EventRouter, expansion, bare Avro conversion"),
    Case("chain_avro300", "chain", "BOOK", "chain of transforms, Avro converter"),
    Case("chain_tombstone", "chain", "TOMBSTONE", "chain of transforms"),
    Case("set_partition", "set-partition", "BOOK", "SetPartition alone"),
    Case("partition_routing", "partition-routing", "BOOK", "PartitionRouting alone"),
]
# Ratio name, variant compared with router_avro300, must, goal.
BOUNDS = (
    ("avro300_time_vs_eventrouter_avro", "eventrouter_avro300", 0.5, 0.33),
    ("avro300_time_vs_eventrouter_bare_avro", "eventrouter_bare_avro300", 0.5, 0.33),
    ("avro300_time_vs_eventrouter_string", "eventrouter_string300", 3.0, 2.0),
    ("avro300_time_vs_eventrouter_one_header", "eventrouter_string300_one_header", 3.0, 2.0),
)


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    _write_configs()
    _report([_measure(number) for number in range(ROUNDS)], machine_info)
    return 0


def _write_configs() -> None:
    CONFIGS.mkdir(parents=True, exist_ok=True)
    for name, config in _configs():
        (CONFIGS / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _configs() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the configs of outbox-kit's templates, and of EventRouter as its documentation recommends."""
    string = _rendered("outbox-postgres-eventrouter")
    one_header = {name: value for name, value in string.items() if not name.endswith("additional.placement")}
    expanded = {**string, "transforms.outbox.table.expand.json.payload": "true"}
    converter = "io.apicurio.registry.utils.converter.AvroConverter"
    registered = {
        "value.converter": converter,
        "value.converter.apicurio.registry.url": "set by the benchmark",
        "value.converter.apicurio.registry.as-confluent": "true",
        "value.converter.apicurio.registry.use-id": "contentId",
        "value.converter.apicurio.registry.headers.enabled": "false",
        "value.converter.apicurio.registry.auto-register": "true",
        "value.converter.apicurio.registry.auto-register.if-exists": "RETURN_OR_UPDATE",
        "value.converter.apicurio.registry.check-period-ms": "2147483647",
    }
    yield ROUTER, _rendered("outbox-postgres")
    yield STRING, string
    yield "event-router-least", one_header
    yield EXPANDED, {**expanded, **registered}
    yield "event-router-bare", {**expanded, "value.converter": "io.outboxkit.bench.BareAvroConverter"}
    yield "chain", _rendered("outbox-postgres-chain")
    yield (
        "set-partition",
        {
            "transforms": "partition",
            "transforms.partition.type": "io.outboxkit.smt.SetPartition",
            "transforms.partition.field": "value.after.aggregate_id",
            "transforms.partition.partitions": "12",
        },
    )
    yield (
        "partition-routing",
        {
            "transforms": "partition",
            "transforms.partition.type": "io.debezium.transforms.partitions.PartitionRouting",
            "transforms.partition.partition.payload.fields": "after.aggregate_id",
            "transforms.partition.partition.topic.num": "12",
            "transforms.partition.partition.hash.function": "murmur",
        },
    )


def _rendered(template: str) -> dict[str, str]:
    pipeline = Pipeline.model_validate(
        {
            "name": "library",
            "prefix": "library",
            "source": {"table": "public.outbox_event", "publication": "library", "slot": "library"},
            "aggregates": {name: {"schema": str(path), "partitions": 12} for name, path in SCHEMAS.items()},
            "connector": {"name": "library", "template": template},
        }
    )
    texts = {name: read_schema(entry.schema_file) for name, entry in pipeline.routed.items()}
    lock = Lock(
        pipeline="library",
        environment="bench",
        schemas={
            name: [
                LockedSchema(
                    subject=pipeline.subject_of(name), version=1, id=number, fingerprint=fingerprint(text), text=text
                )
            ]
            for number, (name, text) in enumerate(texts.items(), start=1)
        },
    )
    return render_connector(pipeline, _ENVIRONMENT, lock, REPOSITORY / "connectors" / "templates")


# No servers run at these addresses.
_ENVIRONMENT = Environment.model_validate(
    {
        "name": "bench",
        "source": {
            "host": "db.example.internal",
            "port": 5432,
            "database": "library",
            "admin": {"user": "owner", "password": "unused"},
            "connector": {"user": "reader", "password": "${env:UNUSED}"},
        },
        "kafka": {"bootstrap_servers": "kafka.example.internal:9092"},
        "registry": {"url": "http://registry.example.internal/apis/ccompat/v7"},
        "connect": {"url": "http://connect.example.internal:8083"},
    }
)


def _measure(number: int) -> list[dict[str, Any]]:
    """Run one fork of every case and return JMH's results."""
    results = BENCH / "smt-round.json"
    runs = [case.run for case in CASES if ONLY in case.run]
    sys.stderr.write(f"round {number + 1} of {ROUNDS}: {len(runs)} cases\n")
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    command = [str(java), *JVM, f"-Dbench.connectors={CONFIGS}", "-cp", ":".join(CLASS_PATH)]
    command += [
        "org.openjdk.jmh.Main",
        "RecordBenchmark.record$",
        "-f",
        "1",
        *ITERATIONS,
        "-prof",
        "gc",
        "-foe",
        "true",
    ]
    command += ["-p", f"run={','.join(runs)}", "-rf", "json", "-rff", str(results)]
    log = BENCH / "smt.log"
    with log.open("w" if number == 0 else "a", encoding="utf-8") as output:
        ended = subprocess.run(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, check=False)
    if ended.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-30:])
        raise SystemExit(f"{tail}\nJMH ended with {ended.returncode}; its output is in {log}")
    report: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    results.unlink()
    return report


@dataclass(frozen=True)
class Sample:
    """One fork of a case: nanoseconds of CPU and wall-clock time and allocated bytes, each per record."""

    cpu_ns: float
    clock_ns: float
    bytes: float


def _samples(rounds: list[list[dict[str, Any]]]) -> dict[str, list[Sample]]:
    """Return one sample per case and round. Each is the median of the fork's iterations."""
    names = {case.run: case.name for case in CASES}
    samples: dict[str, list[Sample]] = {}
    for result in (result for results in rounds for result in results):
        secondary = result["secondaryMetrics"]
        metrics = (secondary["processorNanos"], result["primaryMetric"], secondary["gc.alloc.rate.norm"])
        cpu, clock, allocated = (statistics.median(metric["rawData"][0]) for metric in metrics)
        samples.setdefault(names[result["params"]["run"]], []).append(Sample(cpu, clock, allocated))
    return samples


def _report(rounds: list[list[dict[str, Any]]], machine_info: dict[str, Any]) -> None:
    """Publish medians of the forks, and ratios of CPU time within each round."""
    samples = _samples(rounds)
    measures: dict[str, dict[str, Any]] = {
        case.name: {
            "label": case.label,
            "payload": SIZES[case.payload],
            "cpu_ns": spread((sample.cpu_ns for sample in samples[case.name]), 0),
            "clock_ns": spread((sample.clock_ns for sample in samples[case.name]), 0),
            "bytes": round(statistics.median(sample.bytes for sample in samples[case.name])),
        }
        for case in CASES
        if case.name in samples
    }
    ratios = {
        name: spread(
            router.cpu_ns / alternative.cpu_ns
            for router, alternative in zip(samples["router_avro300"], samples[other], strict=True)
        )
        for name, other, _, _ in BOUNDS
        if "router_avro300" in samples and other in samples
    }
    bounds = [
        Bound(name, ratios[name]["median"], must, goal, at_most=True)
        for name, _, must, goal in BOUNDS
        if name in ratios
    ]
    jvm = rounds[0][0]["vmName"] + " " + rounds[0][0]["vmVersion"]
    content = document(
        machine={**machine_info, "jvm": jvm},
        samples={name: [asdict(sample) for sample in rounds] for name, rounds in samples.items()},
        measures=measures,
        ratios={bound.name: bound.ratio for bound in bounds},
        values={
            **{f"{name}_ns": measure["cpu_ns"]["median"] for name, measure in measures.items()},
            **{f"{name}_bytes": measure["bytes"] for name, measure in measures.items()},
        },
        ratio_spread=ratios,
        rounds=ROUNDS,
        quick=QUICK,
    )
    publish("smt", content, _tables(measures) + bound_table(bounds))


def _tables(measures: dict[str, dict[str, Any]]) -> str:
    heading = ("ns per record", "payload", "CPU", "min to max", "clock", "bytes allocated")
    rows = [
        [
            measure["label"],
            measure["payload"],
            f"{measure['cpu_ns']['median']:,.0f}",
            f"{measure['cpu_ns']['min']:,.0f} to {measure['cpu_ns']['max']:,.0f}",
            f"{measure['clock_ns']['median']:,.0f}",
            f"{measure['bytes']:,}",
        ]
        for measure in measures.values()
    ]
    return markdown(heading, rows)


if __name__ == "__main__":
    sys.exit(main())
