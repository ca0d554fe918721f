"""Life cycle of the stack in a separate project. Most tests use only PostgreSQL, which starts in a second."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.support import invoke

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import Stack
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.fixtures import running_stack
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.processes import command_lines
from outbox_kit.stack.state import StackState

REPOSITORY = Path(__file__).parents[3]
POSTGRES = ("postgres",)


def processes_of(stack: Stack) -> list[str]:
    """Return processes of the project's folders, without relying on the stack's own search."""
    folders = (str(stack.layout.home), str(stack.layout.external_postgres_home), stack.layout.stack_id)
    return [text for text in command_lines().values() if any(folder in text for folder in folders)]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack of an empty project."""
    stack = Stack(tmp_path)
    yield stack
    stack.down(purge=True)
    assert processes_of(stack) == []
    assert not stack.layout.home.exists()
    assert not stack.layout.external_postgres_home.exists()


def value(dsn: str, query: str) -> object:
    """Return the single value of a query."""
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        row = connection.execute(query).fetchone()
    return row[0] if row else None


def test_keeps_data_ports_and_passwords_over_down_and_up(stack: Stack) -> None:
    first = stack.up(services=POSTGRES)
    assert list(first.addresses()) == ["postgres", "target"]
    assert (stack.state(), stat.S_IMODE(stack.layout.state_file.stat().st_mode)) == (first, 0o600)
    assert value(first.postgres, "show wal_level") == "logical"
    assert value(first.postgres, "show max_prepared_transactions") == "64"
    check_logins(first)
    with psycopg.connect(first.target) as connection:  # the owner of the database, not a superuser
        connection.execute("create table numbers as select 7 as n")
    stack.down()
    assert processes_of(stack) == []
    assert stack.state() is None
    assert stack.status() == []

    second = stack.up(services=POSTGRES)
    assert second.ports == first.ports
    assert value(second.target, "select n from numbers") == 7


def check_logins(state: StackState) -> None:
    """Check that the logins have only the required privileges."""
    rights = "select rolreplication and not rolsuper from pg_roles where rolname = current_user"
    connector = state.dsn(state.connector_user, state.connector_password, state.source_database)
    assert value(connector, rights) is True
    assert value(state.target, "select rolsuper or rolreplication from pg_roles where rolname = current_user") is False
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(state.dsn(state.admin_user, "guessed", state.source_database))


def test_a_second_up_prints_the_addresses_or_is_rejected(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    state = stack.up(services=POSTGRES)
    monkeypatch.chdir(stack.layout.root)
    again = invoke(["stack", "up"])
    assert (again.code, state.postgres in again.stdout) == (0, True), again.output
    assert invoke(["stack", "up", "--port", "kafka=9092"]).code == 1
    with pytest.raises(StackError, match="already running") as caught:
        stack.up(services=POSTGRES)
    assert "outbox stack down" in caught.value.hint
    assert (stack.state(), value(state.postgres, "select 1")) == (state, 1)


def test_rejects_concurrent_up_and_down(stack: Stack) -> None:
    with stack.locked(), pytest.raises(StackError, match="another `outbox stack up` or `down` is running"):
        Stack(stack.layout.root).up(services=POSTGRES)


def test_rejects_a_requested_busy_port(stack: Stack) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port} for postgres"):
            stack.up(services=POSTGRES, ports={"postgres": port})
    assert processes_of(stack) == []


@pytest.mark.long
def test_replaces_a_saved_port_that_is_busy(stack: Stack) -> None:
    before = stack.up(services=POSTGRES).postgres_port
    stack.down()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, before))
        listener.listen()
        state = stack.up(services=POSTGRES)
    assert state.postgres_port != before
    assert value(state.postgres, "select 1") == 1


def test_reports_an_exited_service_with_its_log_and_stops_all(stack: Stack) -> None:
    """Corrupt the data, so that PostgreSQL exits with a reason in its log."""
    home = stack.up(services=POSTGRES).postgres_home
    stack.down()
    (home / "data" / "global" / "pg_control").unlink()
    with pytest.raises(StackError) as caught:
        stack.up(services=POSTGRES)
    assert "postgres ended (exit status" in caught.value.message
    assert "pg_control" in caught.value.message
    assert "pg_control" in stack.logs("postgres")
    assert processes_of(stack) == []
    assert stack.state() is None


def test_detects_and_ends_processes_of_a_killed_supervisor(stack: Stack) -> None:
    state = stack.up(services=POSTGRES)
    assert state.supervisor_pid is not None
    os.kill(state.supervisor_pid, signal.SIGKILL)
    wait_for("the end of supervisor", lambda: Observation(None if stack.state() else True, "running"), seconds=10)
    assert [(status.name, status.state) for status in stack.status()] == [("postgres", "orphaned")]
    stack.down()
    assert processes_of(stack) == []


@pytest.mark.long
def test_up_replaces_processes_of_a_killed_supervisor(stack: Stack) -> None:
    state = stack.up(services=POSTGRES)
    assert state.supervisor_pid is not None
    os.kill(state.supervisor_pid, signal.SIGKILL)
    again = stack.up(services=POSTGRES)
    assert again.ports == state.ports
    assert value(again.postgres, "select 1") == 1


def test_restarts_a_killed_server(stack: Stack) -> None:
    state = stack.up(services=POSTGRES)
    time.sleep(2.2)  # longer than startsecs, because an earlier end would count as a failed start
    pid = stack.pid("postgres")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def poll() -> Observation[object]:
        try:
            return Observation(value(state.postgres, "select 1"), "a result")
        except psycopg.OperationalError as error:
            return Observation(None, str(error))

    assert wait_for("postgres to respond", poll, seconds=20) == 1
    assert stack.pid("postgres") != pid


def test_interrupted_up_leaves_no_processes(stack: Stack) -> None:
    """Ctrl-C during the start stops the services that have already been started."""
    code = (
        "import signal, sys; from pathlib import Path; from outbox_kit.stack import Stack\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores SIGINT\n"
        "Stack(Path(sys.argv[1])).up(lambda text: print(text, flush=True), services=('kafka', 'postgres'))\n"
    )
    command = (sys.executable, "-c", code, str(stack.layout.root))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        lines = iter(child.stdout.readline, "")
        assert any(line.startswith("postgres is ready") for line in lines)
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.stderr.read()
    assert processes_of(stack) == []
    assert stack.state() is None


def test_rejects_data_without_passwords(stack: Stack) -> None:
    stack.up(services=POSTGRES)
    stack.down()
    retained = stack.layout.state_file.read_bytes()
    stack.layout.state_file.unlink()
    with pytest.raises(StackError, match=r"state\.json with its passwords does not exist") as caught:
        stack.up(services=POSTGRES)
    assert "--purge" in caught.value.hint
    stack.layout.state_file.write_bytes(retained)


def test_reports_a_missing_runtime_before_any_start(stack: Stack) -> None:
    stack.layout.runtime = stack.layout.root / "missing"
    with pytest.raises(StackError) as caught:
        stack.up(services=POSTGRES)
    assert caught.value.hint.startswith("run `make setup`")
    assert processes_of(stack) == []
    assert not stack.layout.external_postgres_home.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become another user")
def test_does_not_run_postgresql_as_root(stack: Stack) -> None:
    stack.up(services=POSTGRES)
    pid = stack.pid("postgres")
    assert pid is not None
    assert Path(f"/proc/{pid}").stat().st_uid != 0


def test_the_fixture_stops_only_a_stack_that_it_started(stack: Stack) -> None:
    folder = stack.layout.root
    with running_stack(folder, POSTGRES) as started:
        assert value(started.postgres, "select 1") == 1
        with running_stack(folder) as running:
            assert running == started
        assert value(started.postgres, "select 1") == 1
    assert stack.state() is None
    assert stack.has_data
