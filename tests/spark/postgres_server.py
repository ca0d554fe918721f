"""A PostgreSQL server for the tests, from the binaries that `make setup` resolved."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

PROJECT = Path(__file__).resolve().parents[2]
USER = "outbox"
START_SECONDS = 30


@contextmanager
def running_postgres(folder: Path) -> Iterator[psycopg.conninfo.ConninfoDict]:
    """Unpack, initialize and start a server in `folder`. Yield connection parameters. Stop the server at the end."""
    archives = sorted((PROJECT / "build/runtime/postgres").glob(f"postgres-*{platform.machine()}*.txz"))
    if not archives:
        pytest.skip("no PostgreSQL binaries: run `make setup`")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder / "server", filter="tar")
    data = folder / "data"
    owner = _unprivileged(folder)
    _run([str(folder / "server/bin/initdb"), "-D", str(data), "-U", USER, "--no-sync", "-E", "UTF8"], owner)
    port = _free_port()
    command = [str(folder / "server/bin/postgres"), "-D", str(data), "-p", str(port), "-k", str(folder)]
    command += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, user=owner, cwd=folder)
    address: psycopg.conninfo.ConninfoDict = {
        "host": "127.0.0.1",
        "port": port,
        "dbname": "postgres",
        "user": USER,
        "password": "unused",
    }
    try:
        _wait(address, process, folder / "log")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


def _unprivileged(folder: Path) -> str | None:
    """If this process is root, as which PostgreSQL does not start, make `nobody` the owner and return this user."""
    if os.geteuid() != 0:
        return None
    for path in [folder, *folder.rglob("*")]:
        shutil.chown(path, "nobody")
    for parent in folder.parents:
        if parent.stat().st_uid == 0 and str(parent).startswith("/tmp/"):  # noqa: S108 - pytest's own folder
            parent.chmod(parent.stat().st_mode | 0o111)
    return "nobody"


def _run(command: list[str], owner: str | None) -> None:
    result = subprocess.run(command, user=owner, capture_output=True, text=True, check=False, cwd="/")
    assert result.returncode == 0, result.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(address: psycopg.conninfo.ConninfoDict, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(**address).close()
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
