"""Maximum rate at which the server decodes a slot: the upper limit of any consumer.

Uses pg_recvlogical of the distribution's client package, which receives what the connector would and discards it. The
fallback is SQL, which stores every message before the first is counted: a lower, less comparable figure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from tests.benchmarks.meters import processor_seconds
from tests.benchmarks.source_drain import STARTED, Drain, walsender
from tests.benchmarks.stage import PUBLICATION, Stage

READ_BYTES = 1 << 20
OPTIONS = {"proto_version": "1", "publication_names": PUBLICATION, "messages": "true"}  # Debezium's


def method() -> str:
    """How raw() reads."""
    return "pg_recvlogical" if shutil.which("pg_recvlogical") else "pg_logical_slot_peek_binary_changes"


def raw(place: Stage, name: str, base: str, rows: int, end: str) -> Drain:
    """Decode a copy of the slot `base` up to the position `end`."""
    slot = name.replace("-", "_")
    with place.slot(slot, copy_of=base):
        return _received(place, slot, rows, end) if method() == "pg_recvlogical" else _peeked(place, slot, rows)


def _received(place: Stage, slot: str, rows: int, end: str) -> Drain:
    """Through a pipe, so that bytes can be timed: from STARTED of them to the last one."""
    state = place.state
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
            sender = sender or walsender(place, slot)
            total += len(piece)
            observed.append((total, time.perf_counter(), processor_seconds(sender)))
    if process.returncode:
        raise RuntimeError(f"pg_recvlogical ended with status {process.returncode}")
    begin = next(entry for entry in observed if entry[0] >= STARTED * total)
    # The server's process is gone by the time of the last bytes.
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


def _peeked(place: Stage, slot: str, rows: int) -> Drain:
    """Decode all changes by SQL; there is no first byte to wait for."""
    flat = [text for pair in OPTIONS.items() for text in pair]
    query = (
        "select count(*) filter (where get_byte(data, 0) = ascii('I')), sum(length(data)) "
        "from pg_logical_slot_peek_binary_changes(%s, null, null, variadic %s)"
    )
    with place.database() as connection:
        pid = connection.info.backend_pid
        started, used = time.perf_counter(), processor_seconds(pid)
        row = connection.execute(query, [slot, flat]).fetchone()
        seconds, used = time.perf_counter() - started, processor_seconds(pid) - used
    if row is None or row[0] != rows:
        raise RuntimeError(f"the slot holds {row} of {rows} rows")
    return Drain(rows, seconds, 0, 0, used, seconds, float(row[1]) / rows)
