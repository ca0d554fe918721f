"""PostgreSQL servers of several versions, for tests that modify the servers."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.services.postgres import render_settings, server_settings
from outbox_kit.stack.services.postgres_home import change_owner, extract, fits_machine, postgres_user
from outbox_kit.stack.tools import run_tool

BUILD = Path(__file__).resolve().parents[3] / "build"
ADMIN = "outbox_admin"
START_SECONDS = 60


def archive(version: str) -> Path:
    """Return the binaries of a major version, which are those of the stack or of `make older-postgres`."""
    folders = [BUILD / "runtime", *sorted((BUILD / "postgres").glob(f"{version}.*"))]
    folder = folders[-1] if version != "18" else folders[0]
    actual = [path for path in sorted((folder / "postgres").glob("*.txz")) if fits_machine(path.name)]
    if len(actual) != 1 or (version != "18" and len(folders) == 1):
        pytest.fail(f"no binaries of PostgreSQL {version}: run `make older-postgres`")
    return actual[0]


@contextmanager
def run_server(version: str) -> Iterator[int]:
    """Run a server on a free port with trust authentication. Yield its port, and stop and delete it at the end."""
    user = postgres_user()
    # Not in pytest's temporary folder, to which the server's unprivileged user has no access.
    home = Path(tempfile.mkdtemp(prefix="outbox-kit-test-", dir="/var/tmp"))
    home.chmod(0o755)
    try:
        extract(archive(version), home / "dist")
        (home / "dist").chmod(0o755)
        data = home / "data"
        data.mkdir(mode=0o700)
        change_owner(data, user)
        bin_folder = home / "dist" / "bin"
        options = (f"--username={ADMIN}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        run_tool(
            "initdb", (str(bin_folder / "initdb"), f"--pgdata={data}", *options), seconds=60, folder=home, user=user
        )
        port = free_port()
        settings = server_settings(port, f"test-{version}") | {"fsync": "off", "shared_buffers": "'32MB'"}
        (data / "postgresql.conf").write_text(render_settings(settings))
        with process(bin_folder / "postgres", data, user):
            wait_for(f"PostgreSQL {version}", lambda: check_server(port), seconds=START_SECONDS, interval=0.1)
            yield port
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def process(program: Path, data: Path, user: str | None) -> Iterator[None]:
    """Run the server during the block. Stop it with SIGINT, which causes a fast shutdown."""
    with (data.parent / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, "-D", data],
            stdout=log,
            stderr=log,
            cwd=data.parent,
            user=pwd.getpwnam(user).pw_uid if user else None,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGINT)
        server.wait(timeout=START_SECONDS)


@contextmanager
def reading(dsn: str, slot: str, publication: str) -> Iterator[None]:
    """Read a slot without acknowledging anything."""
    connection = pq.PGconn.connect(f"{dsn} replication=database".encode())
    try:
        assert connection.status == pq.ConnStatus.OK, connection.get_error_message()
        command = f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names '{publication}')"
        result = connection.exec_(command.encode())
        assert result.status == pq.ExecStatus.COPY_BOTH, result.get_error_message()
        yield
    finally:
        connection.finish()


def check_server(port: int) -> Observation[bool]:
    try:
        psycopg.connect(host="127.0.0.1", port=port, user=ADMIN, dbname="postgres", connect_timeout=2).close()
    except psycopg.OperationalError as error:
        return Observation(None, str(error))
    return Observation(True, "it answers")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
