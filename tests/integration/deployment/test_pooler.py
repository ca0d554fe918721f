"""Commands whose lock needs a session, through PgBouncer."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.integration.support import Deploy, Outbox

from outbox_events.waiting import Observation, wait_for

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NAME = "pooled"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed (Debian: package pgbouncer)"),
]


@pytest.fixture
def pooler(source_dsn: str, free_tcp_port: int, tmp_path: Path) -> Callable[[str], object]:
    """Start PgBouncer in a pool mode, on `free_tcp_port`."""
    login = conninfo_to_dict(source_dsn)
    (tmp_path / "users.txt").write_text(f'"{login["user"]}" "{login["password"]}"\n')

    @contextmanager
    def run(mode: str) -> Iterator[None]:
        (tmp_path / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={login['host']} port={login['port']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {free_tcp_port}\npool_mode = {mode}\n"
            f"auth_type = plain\nauth_file = {tmp_path}/users.txt\nignore_startup_parameters = options\n"
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        if user:
            for path in (tmp_path, *tmp_path.parents[:2], *tmp_path.iterdir()):
                path.chmod(0o755)
        process = subprocess.Popen([str(PGBOUNCER), "-q", *user, str(tmp_path / "pgbouncer.ini")])
        try:
            wait_for("PgBouncer", lambda: _login(source_dsn, free_tcp_port), seconds=20)
            yield
        finally:
            process.terminate()
            process.wait(20)

    return run


def _login(dsn: str, port: int) -> Observation[bool]:
    try:
        psycopg.connect(dsn, host="127.0.0.1", port=port).close()
    except psycopg.OperationalError as error:
        return Observation(None, str(error))
    return Observation(True, "")


def test_commands_need_a_session(
    deploy: Deploy, outbox_here: Outbox, pooler: Callable[[str], object], free_tcp_port: int
) -> None:
    deploy(NAME)
    # Other commands that need the lock refuse a port that differs from that of the last apply.
    settings = ("--set", "environment.source.host=127.0.0.1", "--set", f"environment.source.port={free_tcp_port}")
    with pooler("transaction"):  # type: ignore[attr-defined]
        done = outbox_here("pause", *settings, pipeline=NAME)
        assert done.code == 1
        assert "transaction" in done.stderr, done.output
        read = outbox_here("verify", "--no-canary", *settings, pipeline=NAME)
        assert "prepared statement" not in read.output
    with pooler("session"):  # type: ignore[attr-defined]
        done = outbox_here("pause", *settings, pipeline=NAME)
        assert done.code == 0, done.output
