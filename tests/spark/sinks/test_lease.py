"""Leases: acquisition, renewal, and takeover of the lease of an ended run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.table_under_test import Target

from outbox_events.errors import UnreachableError
from outbox_spark.errors import OverlapError
from outbox_spark.sinks.lake.lease import Lease, LeaseHolder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lake/thing__lease"


def write(file: Path, host: str = "elsewhere", pid: int = 7, **more: int) -> None:
    """Write a lease as another run would."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"token": "other", "host": host, "pid": pid, "until": time.time() + 50, **more}))


def test_reports_the_holder_to_a_second_run(spark: SparkSession, file: Path) -> None:
    first, second = Lease(spark, str(file), print), Lease(spark, str(file), print)
    first.acquire()
    try:
        with pytest.raises(OverlapError, match=rf"{file}: process {os.getpid()} on {socket.gethostname()}") as caught:
            second.acquire()
        assert caught.value.transient
        second.release()  # does not release the lease of the first run
        assert file.exists()
    finally:
        first.release()
    assert list(file.parent.iterdir()) == []
    second.acquire()
    second.release()


def test_takes_over_an_expired_lease_and_stops_its_holder(spark: SparkSession, file: Path) -> None:
    messages: list[str] = []
    expired = Lease(spark, str(file), print, clock=lambda: time.time() - 3600)
    expired.acquire()
    new = Lease(spark, str(file), messages.append)
    new.acquire()
    try:
        assert len(messages) == 1
        assert f"took over the lease {file} of a run that has ended: process {os.getpid()}" in messages[0]
        assert not expired.renew()
        with pytest.raises(OverlapError, match="was taken over by process"):
            expired.check()
        new.check()
        expired.release()
        assert new.renew()
    finally:
        new.release()


def test_does_not_wait_for_an_ended_local_process(spark: SparkSession, file: Path) -> None:
    ended_process, namespace = subprocess.Popen(["true"]), Path("/proc/self/ns/pid").stat().st_ino
    ended_process.wait()
    write(file, socket.gethostname(), ended_process.pid, pid_namespace=namespace)
    lease = Lease(spark, str(file), print)
    lease.acquire()
    assert json.loads(file.read_text())["pid_namespace"] == namespace
    lease.release()
    write(file, "elsewhere", ended_process.pid, pid_namespace=namespace)
    with pytest.raises(OverlapError, match=f"process {ended_process.pid} on elsewhere"):
        lease.acquire()


def test_waits_for_a_process_of_another_container(spark: SparkSession, file: Path) -> None:
    """Containers with the same host name have separate PID namespaces."""
    ended_process, namespace = subprocess.Popen(["true"]), Path("/proc/self/ns/pid").stat().st_ino
    ended_process.wait()
    no_namespace: dict[str, int] = {}
    for fields in ({"pid_namespace": namespace + 1}, no_namespace):
        write(file, socket.gethostname(), ended_process.pid, **fields)
        with pytest.raises(OverlapError, match=f"process {ended_process.pid} on {socket.gethostname()}"):
            Lease(spark, str(file), print).acquire()
        late = Lease(spark, str(file), print, clock=lambda: time.time() + 51)
        late.acquire()
        late.release()


def test_slower_takeover_keeps_the_new_lease(spark: SparkSession, file: Path) -> None:
    write(file)
    lease = Lease(spark, str(file), print)
    with pytest.raises(OverlapError, match="process 7 on elsewhere"):
        lease._remove_ended(LeaseHolder("dead", "elsewhere", 6, 0.0))
    assert json.loads(file.read_text())["token"] == "other"


def test_incomplete_lease_is_valid_from_its_file_time(spark: SparkSession, file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    lease = Lease(spark, str(file), print)
    with pytest.raises(OverlapError, match="an unknown host"):
        lease.acquire()
    os.utime(file, (time.time() - 61, time.time() - 61))
    lease.acquire()
    lease.release()


def test_renews_the_lease_during_the_run(spark: SparkSession, file: Path) -> None:
    renewed = threading.Event()

    class ObservedLease(Lease):
        def renew(self) -> bool:
            done = super().renew()
            renewed.set()
            return done

    lease = ObservedLease(spark, str(file), print, seconds=0.3)
    lease.acquire()
    try:
        first = json.loads(file.read_text())["until"]
        assert renewed.wait(30)
        assert json.loads(file.read_text())["until"] > first
    finally:
        lease.release()


def test_reports_a_folder_that_is_not_writable(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(UnreachableError, match=r"lake/thing__lease cannot be written: \w+Exception"):
        Lease(spark, str(tmp_path / "lake/thing__lease"), print).acquire()


@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_concurrent_runs_of_a_lake_table_are_rejected(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    with target.open(), pytest.raises(OverlapError, match=r"another run holds .*thing__lease"), target.open():
        pass
    with target.open():
        pass
