#!/usr/bin/env python3
"""What a record costs in OutboxRouter, and in what others publish for the same job, by JMH.

Renders the connector configs, lets smt/bench measure the transforms and the value converter of each, prints a table and
the ratios, and writes build/bench/smt.json; see docs/performance.md, whose tables it replaces with `--write-docs`.
Every round is one fork of every case in turn, so that a change of the machine's load meets all of them; ratios are of
the processor's time, which that load changes far less than the clock's.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

from outbox_kit.pipeline import Environment, Lock, LockedSchema, Pipeline, render_connector
from outbox_kit.pipeline.avro import fingerprint, read_schema

QUICK = os.environ.get("QUICK", "") not in ("", "0")
ROUNDS = int(os.environ.get("ROUNDS", "1" if QUICK else "4"))
ITERATIONS = ["-w", "1", "-r", "1", "-wi", "4", "-i", "3" if QUICK else "5"]
ONLY = os.environ.get("ONLY", "")

BENCH = REPOSITORY / "build" / "bench"
CONFIGS = BENCH / "smt-connectors"
DOCS = REPOSITORY / "docs" / "performance.md"
# The transforms before the stack's jars: where both have a library, it is the newer one that all share.
CLASS_PATH = [
    "smt/bench/target/classes",
    "smt/bench/target/lib/*",
    "smt/target/plugin/outbox-smt/*",
    "smt/target/plugin/outbox-avro-converter/*",
    "build/runtime/connect-plugins/debezium-connector-postgres/*",
    "build/runtime/kafka/libs/*",
]
# The compiler is waited for: on a busy machine warm-up takes longer, instead of measuring the interpreter.
JVM = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:-BackgroundCompilation"]
SCHEMAS = {
    "loan": REPOSITORY / "tests" / "benchmarks" / "schemas" / "loan.avsc",
    "book": REPOSITORY / "schemas" / "book.avsc",
    "order": REPOSITORY / "tests" / "benchmarks" / "schemas" / "order.avsc",
}
SIZES = {"LOAN": "100 B", "BOOK": "300 B", "ORDER": "2 KB", "TOMBSTONE": "tombstone"}


@dataclass(frozen=True)
class Case:
    """A connector config on a kind of payload."""

    connector: str
    payload: str
    words: str

    @property
    def run(self) -> str:
        """The value of the benchmark's parameter."""
        return f"{self.connector}/{self.payload}"


ROUTER, STRING, EXPANDED = "outbox-router", "event-router", "event-router-expanded"
CASES = [
    *(Case(ROUTER, kind, "OutboxRouter, JSON to Avro") for kind in ("LOAN", "BOOK", "ORDER")),
    Case(ROUTER, "TOMBSTONE", "OutboxRouter"),
    *(Case(STRING, kind, "EventRouter, string passed through") for kind in ("LOAN", "BOOK", "ORDER")),
    Case(STRING, "TOMBSTONE", "EventRouter"),
    Case("event-router-least", "BOOK", "EventRouter, string, no header but the id"),
    *(Case(EXPANDED, kind, "EventRouter, expansion, Avro converter") for kind in ("LOAN", "BOOK", "ORDER")),
    Case("event-router-bare", "BOOK", "EventRouter, expansion, bare Avro conversion"),
    Case("chain", "BOOK", "chain of transforms, Avro converter"),
    Case("chain", "TOMBSTONE", "chain of transforms"),
    Case("set-partition", "BOOK", "SetPartition alone"),
    Case("partition-routing", "BOOK", "PartitionRouting alone"),
]


@dataclass(frozen=True)
class Bound:
    """A ratio of two cases, and what it is held to."""

    case: str
    against: str
    must: float
    goal: float


BOUNDS = [
    Bound(f"{ROUTER}/BOOK", f"{EXPANDED}/BOOK", 0.5, 0.33),
    Bound(f"{ROUTER}/BOOK", "event-router-bare/BOOK", 0.5, 0.33),
    Bound(f"{ROUTER}/BOOK", f"{STRING}/BOOK", 3.0, 2.0),
    Bound(f"{ROUTER}/BOOK", "event-router-least/BOOK", 3.0, 2.0),
]


def main(arguments: list[str]) -> int:
    """Measure, print, write; with --write-docs only put what was measured last into the docs."""
    target = BENCH / "smt.json"
    if "--write-docs" not in arguments:
        _write_configs()
        rounds = [_measure(number) for number in range(ROUNDS)]
        target.write_text(json.dumps(_document(rounds), indent=2) + "\n", encoding="utf-8")
    document = json.loads(target.read_text(encoding="utf-8"))
    if "--write-docs" in arguments:
        _write_docs(document)
    _report(document)
    print(f"raw samples: {target.relative_to(REPOSITORY)}")
    return 0


def _write_configs() -> None:
    CONFIGS.mkdir(parents=True, exist_ok=True)
    for name, config in _configs():
        (CONFIGS / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _configs() -> Iterator[tuple[str, dict[str, str]]]:
    """What is deployed for the same job: our templates, and what EventRouter's documentation says."""
    string = _rendered("outbox-postgres-eventrouter")
    least = {name: value for name, value in string.items() if not name.endswith("additional.placement")}
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
    yield "event-router-least", least
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


# Nothing listens there.
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
    """One fork of every case; JMH's own results."""
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
        raise SystemExit(f"{tail}\nJMH ended with {ended.returncode}; all it printed is in {log}")
    found: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    results.unlink()
    return found


def _document(rounds: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Scores by case and round, and the ratios within each round."""
    clock: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    allocated: dict[str, list[float]] = {}
    for results in rounds:
        for result in results:
            run, more = result["params"]["run"], result["secondaryMetrics"]
            clock.setdefault(run, []).append(_of_fork(result["primaryMetric"]))
            processor.setdefault(run, []).append(_of_fork(more["processorNanos"]))
            allocated.setdefault(run, []).append(_of_fork(more["gc.alloc.rate.norm"]))
    cases = [
        {
            "case": case.run,
            "words": case.words,
            "payload": SIZES[case.payload],
            "clock_ns": _spread(clock[case.run], 0),
            "processor_ns": _spread(processor[case.run], 0),
            "bytes": round(statistics.median(allocated[case.run])),
        }
        for case in CASES
        if case.run in clock
    ]
    ratios = [
        {
            "case": bound.case,
            "against": bound.against,
            "ratio": _spread(_ratios(processor[bound.case], processor[bound.against]), 3),
            "clock_ratio": _spread(_ratios(clock[bound.case], clock[bound.against]), 3),
            "must": bound.must,
            "goal": bound.goal,
        }
        for bound in BOUNDS
        if bound.case in clock and bound.against in clock
    ]
    machine = {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "jvm": rounds[0][0]["vmName"] + " " + rounds[0][0]["vmVersion"],
        "platform": platform.platform(),
    }
    return {"machine": machine, "quick": QUICK, "rounds": ROUNDS, "cases": cases, "ratios": ratios, "jmh": rounds}


def _of_fork(metric: dict[str, Any]) -> float:
    iterations: list[float] = metric["rawData"][0]
    return statistics.median(iterations)


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Of one round each."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def _spread(values: list[float], digits: int) -> dict[str, float]:
    """Median, least and most of the forks: a fork is what is independent of the others, an iteration is not."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }


def _report(document: dict[str, Any]) -> None:
    print(f"{'ns per record':<46}{'payload':<11}{'processor':>10}{'min':>8}{'max':>8}{'clock':>8}{'bytes':>8}")
    for case in document["cases"]:
        ns = case["processor_ns"]
        print(
            f"{case['words']:<46}{case['payload']:<11}{ns['median']:>10.0f}{ns['min']:>8.0f}{ns['max']:>8.0f}"
            f"{case['clock_ns']['median']:>8.0f}{case['bytes']:>8}"
        )
    print(f"\n{'ratio':<52}{'processor':>10}{'min':>7}{'max':>7}{'clock':>7}{'must':>6}{'goal':>6}")
    for found in document["ratios"]:
        ratio = found["ratio"]
        print(
            f"{found['case'] + ' : ' + found['against']:<52}{ratio['median']:>10.2f}{ratio['min']:>7.2f}"
            f"{ratio['max']:>7.2f}{found['clock_ratio']['median']:>7.2f}{found['must']:>6}{found['goal']:>6}"
            f"  {_verdict(found)}"
        )


def _verdict(found: dict[str, Any]) -> str:
    median = found["ratio"]["median"]
    if median <= found["goal"]:
        return "goal"
    return "must" if median <= found["must"] else "missed"


def _write_docs(document: dict[str, Any]) -> None:
    """Replace what stands between the two markers."""
    words = {case["case"]: case["words"] for case in document["cases"]}
    lines = [
        "| ns per record | payload | processor | least to most | clock | bytes allocated |",
        "|---|---|---|---|---|---|",
        *(
            f"| {case['words']} | {case['payload']} | {case['processor_ns']['median']:,.0f} |"
            f" {case['processor_ns']['min']:,.0f} to {case['processor_ns']['max']:,.0f} |"
            f" {case['clock_ns']['median']:,.0f} | {case['bytes']:,} |"
            for case in document["cases"]
        ),
        "",
        "| OutboxRouter, 300 B JSON to Avro, against | ratio | least to most |",
        "|---|---|---|",
        *(
            f"| {words[found['against']]} | {found['ratio']['median']:.2f} |"
            f" {found['ratio']['min']:.2f} to {found['ratio']['max']:.2f} |"
            for found in document["ratios"]
        ),
    ]
    begin, end = "<!-- figures of bench-smt: generated, do not edit -->\n", "<!-- end of figures -->"
    text = DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_end:
        raise SystemExit(f"{DOCS} has no {begin.strip()} ... {end}")
    DOCS.write_text(before + begin + "\n".join(lines) + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
