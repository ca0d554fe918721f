"""Maximum rate at which the server decodes a slot: the upper limit of any consumer.

Uses pg_recvlogical if the client package of the distribution is installed. It receives the same messages as the
connector. The fallback is SQL, which stores all messages before it returns any message, so its figure is lower.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from tests.benchmarks.benchmark_stack import PUBLICATION, BenchmarkStack
from tests.benchmarks.meters import cpu_seconds
from tests.benchmarks.source_drain import START_SHARE, Drain, walsender

READ_BYTES = 1 << 20
OPTIONS = {"proto_version": "1", "publication_names": PUBLICATION, "messages": "true"}  # Debezium's


def method() -> str:
    """Return the program or function that raw() uses."""
    return "pg_recvlogical" if shutil.which("pg_recvlogical") else "pg_logical_slot_peek_binary_changes"


def raw(bench: BenchmarkStack, name: str, base: str, rows: int, end: str) -> Drain:
    """Decode a copy of the slot `base` up to the LSN `end`."""
    slot = name.replace("-", "_")
    with bench.slot(slot, copy_of=base):
        return (
            _with_pg_recvlogical(bench, slot, rows, end)
            if method() == "pg_recvlogical"
            else _with_sql(bench, slot, rows)
        )


def _with_pg_recvlogical(bench: BenchmarkStack, slot: str, rows: int, end: str) -> Drain:
    """Decode with pg_recvlogical through a pipe. Measure from START_SHARE of the bytes to the last byte."""
    state = bench.state
    address = f"host={state.postgres_host} port={state.postgres_port} dbname={state.source_database}"
    command = ["pg_recvlogical", "-d", f"{address} user={state.admin_user}", "-S", slot, "--start", "--no-loop"]
    command += ["-f", "-", "-F", "0", "-E", end, *(f"-o{key}={value}" for key, value in OPTIONS.items())]
    started = time.perf_counter()
    observed: list[tuple[int, float, float]] = []
    total, sender = 0, None
    with subprocess.Popen(
        command, env={**os.environ, "PGPASSWORD": state.admin_password}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), READ_BYTES):
            sender = sender or walsender(bench, slot)
            total += len(piece)
            observed.append((total, time.perf_counter(), cpu_seconds(sender)))
    if process.returncode:
        raise RuntimeError(f"pg_recvlogical ended with status {process.returncode}")
    begin = next(entry for entry in observed if entry[0] >= START_SHARE * total)
    # The walsender ends before the last bytes are read.
    last_alive = next(entry for entry in reversed(observed) if entry[2])
    return Drain(
        events=rows * (1 - begin[0] / total),
        seconds=observed[-1][1] - begin[1],
        worker_processor=0,
        broker_processor=0,
        sender_processor=last_alive[2] - begin[2],
        from_resume=observed[-1][1] - started,
        bytes_per_value=total / rows,
    )


def _with_sql(bench: BenchmarkStack, slot: str, rows: int) -> Drain:
    """Decode all changes with SQL, and measure the whole query."""
    option_arguments = [text for pair in OPTIONS.items() for text in pair]
    query = (
        "select count(*) filter (where get_byte(data, 0) = ascii('I')), sum(length(data)) "
        "from pg_logical_slot_peek_binary_changes(%s, null, null, variadic %s)"
    )
    with bench.database() as connection:
        pid = connection.info.backend_pid
        started, used = time.perf_counter(), cpu_seconds(pid)
        row = connection.execute(query, [slot, option_arguments]).fetchone()
        seconds, used = time.perf_counter() - started, cpu_seconds(pid) - used
    if row is None or row[0] != rows:
        raise RuntimeError(f"the slot has {row} of {rows} rows")
    return Drain(rows, seconds, 0, 0, used, seconds, float(row[1]) / rows)
