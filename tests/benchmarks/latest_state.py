"""Time in which LatestState reads a topic, compared with a consumer that only receives the same records.

Both run in turn, in the same process and with the same settings.
Set KEYS=10000 to use fewer keys.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.report import document, machine, markdown, publish, spread
from tests.conftest import make_project

from outbox_events import LatestState
from outbox_events.receiving.event import json_value
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_kit.stack import Stack

TOPIC = "bench.latest"
PARTITIONS = 4
KEYS = int(os.environ.get("KEYS", "1000000"))
ROUNDS = 3
VALUE = json.dumps({"name": "Ursula K. Le Guin", "country": "US", "born": "1929-10-21", "notes": "x" * 120}).encode()


def write_records(bootstrap: str) -> None:
    """Write one record per key, with the headers of the contract."""
    KafkaClient(Kafka(bootstrap_servers=bootstrap)).create(
        TOPIC, partitions=PARTITIONS, replication_factor=1, config={}
    )
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(KEYS):
        headers: list[tuple[str, bytes]] = [
            ("event_id", b"5e9a4d0c-5c39-4e6c-9a57-0f6f0a3c8f11"),
            ("event_type", b"author_changed"),
            ("aggregate_type", b"author"),
            ("event_time", b"2026-01-02T03:04:05.000006Z"),
            ("source_sequence", f"0001_{number:016x}-{number:016x}".encode()),
        ]
        while True:
            try:
                producer.produce(TOPIC, VALUE, f"author-{number:09}", partition=number % PARTITIONS, headers=headers)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(300) == 0


def receive_only(settings: dict[str, Any]) -> int:
    """Receive every record without processing it. Return the number of records."""
    consumer = Consumer(
        {**settings, "group.id": "bench", "enable.partition.eof": True, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    count, ended = 0, 0
    while ended < PARTITIONS:
        first = consumer.poll(1)
        for message in [] if first is None else [first, *consumer.consume(9_999, timeout=0)]:
            error = message.error()
            if error is None:
                count += 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    consumer.close()
    return count


def load(settings: dict[str, Any], snapshot: Path | None = None) -> LatestState:
    cache = LatestState(settings, TOPIC, decode=json_value, snapshot=snapshot)
    cache.load(seconds=600)
    assert len(cache) == KEYS
    return cache


def seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(settings: dict[str, Any], folder: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the seconds of each round by variant, and the other measured values."""
    before = resident_mib()
    kept = load(settings)
    values = {"keys": float(KEYS), "value_bytes": float(len(VALUE)), "memory_mib": resident_mib() - before}
    values["decode_all_s"] = seconds(lambda cache=kept: sum(1 for _ in cache.items()))
    kept.close()
    del kept  # its memory must not slow down the rounds
    samples: dict[str, list[float]] = {"receive": [], "load": []}
    for number in range(ROUNDS):
        samples["receive"].append(seconds(lambda: receive_only(settings)))
        caches: list[LatestState] = []
        samples["load"].append(seconds(lambda kept=caches: kept.append(load(settings))))
        caches.pop().close()
        print_progress(
            f"round {number + 1}: received {samples['receive'][-1]:.2f} s, loaded {samples['load'][-1]:.2f} s"
        )
    saved = load(settings, folder / "snapshot")
    values["save_snapshot_s"] = seconds(saved.close)
    del saved
    resumed: list[LatestState] = []
    values["load_from_snapshot_s"] = seconds(lambda: resumed.append(load(settings, folder / "snapshot")))
    resumed.pop().close()
    return samples, values


def report(machine_info: dict[str, Any], samples: dict[str, list[float]], values: dict[str, float]) -> None:
    """Print the figures, and write the JSON file."""
    ratio = statistics.median(b / a for a, b in zip(samples["receive"], samples["load"], strict=True))
    measures = {name: {"s": spread(rounds)} for name, rounds in samples.items()}
    rows = [[f"{name}, median of {ROUNDS}", f"{statistics.median(rounds):.2f} s"] for name, rounds in samples.items()]
    rows += [["load / receive", f"{ratio:.2f}"], *([name, f"{value:.2f}"] for name, value in values.items())]
    content = document(
        machine=machine_info, samples=samples, measures=measures, ratios={"load_to_receive": ratio}, values=values
    )
    publish("latest-state", content, markdown(["measure", "value"], rows))


def main() -> None:
    machine_info = machine()
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        stack = Stack(make_project(Path(folder) / "project"))
        try:
            state = stack.up(print_progress)
            print_progress(f"writing {KEYS} records")
            write_records(state.kafka)
            measured = measure({"bootstrap.servers": state.kafka}, Path(folder))
        finally:
            stack.down(print_progress, purge=True)
    report(machine_info, *measured)


if __name__ == "__main__":
    main()
