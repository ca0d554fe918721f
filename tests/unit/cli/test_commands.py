"""Command line: exit codes, stdout and stderr."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from tests.unit.cli.samples import SECRETS, RunMain

from outbox_events.errors import RejectedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit import __version__, deployment
from outbox_kit.cli.app import TASKS
from outbox_kit.stack.ports import HOST

RUN = [sys.executable, "-c", "from outbox_kit.cli import main; main()"]
# If the tests were started in the background, SIGINT is ignored, and the process inherits this.
ENABLE_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
PAYLOAD = "pl4nted-payload"


def test_a_missing_pipeline_file(run_main: RunMain) -> None:
    code, out, err = run_main("render", "-p", "connectors/none.yaml")
    assert (code, out) == (1, "")
    error, hint = err.splitlines()
    assert error.startswith("error: cannot read ")
    assert error.endswith("connectors/none.yaml: No such file or directory")
    assert hint.startswith("hint:  name a readable pipeline file with -p/--pipeline or OUTBOX_PIPELINE; ")


def test_debug_prints_no_row_of_a_table(run_main: RunMain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The details of PostgreSQL's errors contain the row, as in "Failing row contains (...)"."""

    class CheckViolation(psycopg.errors.CheckViolation):
        sqlstate = "23514"

        def __str__(self) -> str:
            return f"violates check constraint\nDETAIL:  Failing row contains ({PAYLOAD})."

    def fail(*_: object) -> None:
        try:
            raise CheckViolation
        except psycopg.Error as error:
            raise RejectedError("PostgreSQL: violates check constraint") from error

    monkeypatch.setattr(deployment, "render_config", fail)
    code, _, err = run_main("render", "--debug")
    assert code == 1
    assert "CheckViolation: violates check constraint\n" in err
    assert "in fail" in err
    assert PAYLOAD not in err


def test_debug_prints_the_traceback_of_the_error(run_main: RunMain) -> None:
    code, out, err = run_main("render", "--debug", "-p", "connectors/none.yaml")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-2].startswith("error: cannot read ")


def test_rejects_an_unknown_command_with_exit_code_2(run_main: RunMain) -> None:
    code, out, err = run_main("deploi")
    assert (code, out) == (2, "")
    assert "deploi" in err


def test_render_prints_only_json(workspace: Path) -> None:
    """Render in a separate process, so that the test detects anything that libraries print."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    command = [*RUN, "render", "-e", "production.example"]
    environment = {**variables, **SECRETS}
    done = subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["name"] == "library-outbox"
    assert printed["config"]["database.password"].startswith("${file:")
    assert printed["config"]["transforms.outbox.aggregate.book.schema.1.id"] == "(known after apply)"
    assert "s3cret" not in done.stdout


def test_render_requires_no_secret(run_main: RunMain) -> None:
    """A CI job can render the production config without the passwords of production."""
    code, out, err = run_main("render", "-e", "production.example")
    assert (code, err) == (0, "")
    assert json.loads(out)["config"]["database.user"] == "outbox_connector"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("host: db.example.internal", 'host: "{{ env.UNSET }}"'),
        ("user: outbox_connector", 'user: "{{ env.UNSET }}"'),
        ("port: 5432", 'port: "{{ env.UNSET }}"'),
    ],
)
def test_render_requires_the_variables_it_prints(run_main: RunMain, workspace: Path, old: str, new: str) -> None:
    """An unset variable must not become an empty host name in a config that may be deployed."""
    folder = workspace / "connectors" / "environments"
    example = (folder / "production.example.yaml").read_text(encoding="utf-8")
    assert old in example
    (folder / "production.yaml").write_text(example.replace(old, new), encoding="utf-8")
    code, out, err = run_main("render", "-e", "production")
    assert (code, out) == (1, "")
    assert "environment variable UNSET is not set" in err


@pytest.mark.parametrize("service", ["registry", "connect"])
def test_render_needs_no_address_of_a_service(run_main: RunMain, workspace: Path, service: str) -> None:
    folder = workspace / "connectors" / "environments"
    example = (folder / "production.example.yaml").read_text(encoding="utf-8")
    url = f"url: https://{service}.example.internal"
    assert url in example
    edited = re.sub(rf"{url}.*", 'url: "{{ env.UNSET }}"', example)
    (folder / "production.yaml").write_text(edited, encoding="utf-8")
    code, out, err = run_main("render", "-e", "production")
    assert (code, err) == (0, "")
    assert json.loads(out)["name"] == "library-outbox"


def test_reports_that_the_stack_is_not_running(run_main: RunMain) -> None:
    code, out, err = run_main("plan")
    assert (code, out) == (1, "")
    assert "error: the embedded stack is not running\n" in err
    assert "`outbox stack up -e local`" in err


def test_asks_for_a_pipeline_if_there_are_several(run_main: RunMain, workspace: Path) -> None:
    (workspace / "connectors" / "store.yaml").touch()
    code, out, err = run_main("render", "-e", "production.example")
    assert (code, out) == (2, "")
    assert "connectors/library.yaml, connectors/store.yaml" in err


@pytest.mark.parametrize("command", ["destroy", "offsets reset", "prune"])
def test_names_the_option_that_confirms_instead_of_yes(run_main: RunMain, command: str) -> None:
    code, out, err = run_main(*command.split(), "--yes")
    assert (code, out) == (2, "")
    assert "--confirm PIPELINE@ENVIRONMENT" in err


def test_sigterm_exits_like_sigint(workspace: Path) -> None:
    """The command blocks on a server that accepts the connection and does not respond."""
    with socket.create_server((HOST, 0)) as server:
        server.settimeout(20)
        write_environment(workspace, server.getsockname()[1])
        for sent in (signal.SIGTERM, signal.SIGINT):
            process = start_blocked_command(workspace)
            try:
                connection, _ = server.accept()
                with connection:
                    wait_until_blocked(process.pid)
                    process.send_signal(sent)
                    out, err = process.communicate(timeout=20)
            finally:
                process.kill()
            assert (process.returncode, out) == (130, ""), sent
            assert "Traceback" not in err
            assert err.endswith("interrupted\n")


DISCARDED_INTERRUPT = """
import signal
try:
    signal.raise_signal(signal.{signal})
except KeyboardInterrupt:
    pass
raise SystemExit("continued")
"""
PLAN = "import sys; sys.argv = ['outbox', 'plan']; " + RUN[-1]
MATERIALIZE = "from outbox_spark.console_scripts import materialize; materialize()"


@pytest.mark.parametrize(
    ("library", "run", "number"),
    [
        ("typer", PLAN, signal.SIGINT),
        ("psycopg", PLAN, signal.SIGINT),
        ("psycopg", PLAN, signal.SIGTERM),
        ("pyspark", MATERIALIZE, signal.SIGINT),
    ],
)
def test_signal_ends_the_process_while_modules_are_imported(
    tmp_path: Path, library: str, run: str, number: signal.Signals
) -> None:
    """A library that discards a KeyboardInterrupt must not let the command continue."""
    (tmp_path / f"{library}.py").write_text(DISCARDED_INTERRUPT.format(signal=number.name), encoding="utf-8")
    command = [sys.executable, "-c", f"{ENABLE_SIGINT}import sys; sys.path.insert(0, {str(tmp_path)!r}); {run}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("try: main()\nfinally: signal.raise_signal({number})", 130),
        # This handler runs after the handlers that the command registers, so that only Python's own cleanup follows.
        ("import atexit; atexit.register(signal.raise_signal, {number}); main()", 0),
    ],
)
def test_signal_before_the_process_ends(number: signal.Signals, program: str, code: int) -> None:
    """The work is done and its output is complete, but the process has not ended yet."""
    start = f"{ENABLE_SIGINT}from outbox_kit.cli import main; import sys; sys.argv[1:] = ['--version']\n"
    command = [sys.executable, "-c", start + program.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, f"outbox-kit {__version__}\n", "")


@pytest.mark.parametrize(("typed", "code"), [(None, 130), (b"\x04", 1), (b"n\n", 1)])
def test_ends_at_a_question(tmp_path: Path, typed: bytes | None, code: int) -> None:
    """The demo asks before it deletes a stopped stack. Ctrl-C, Ctrl-D and `n` delete nothing."""
    state = tmp_path / "build" / "stack" / "state.json"
    state.parent.mkdir(parents=True)
    state.touch()
    master, terminal = pty.openpty()
    command = [sys.executable, "-c", ENABLE_SIGINT + RUN[-1], "demo"]
    with (
        os.fdopen(master, "wb", buffering=0) as keyboard,
        subprocess.Popen(command, cwd=tmp_path, stdin=terminal, stderr=subprocess.PIPE) as process,
    ):
        os.close(terminal)
        assert process.stderr is not None
        printed = b""
        while b"[y/N]" not in printed:
            printed += process.stderr.read(1)
        if typed is None:
            process.send_signal(signal.SIGINT)
        else:
            keyboard.write(typed)
        printed += process.stderr.read()
    assert process.returncode == code, printed
    assert b"Traceback" not in printed
    assert str(state.parent).encode() in printed
    assert state.exists()


def test_demo_deletes_nothing_unasked(run_main: RunMain, workspace: Path) -> None:
    state = workspace / "build" / "stack" / "state.json"
    state.parent.mkdir(parents=True)
    state.touch()
    code, out, err = run_main("demo")
    assert (code, out) == (1, "")
    assert "--yes is required" in err
    assert state.exists()


def write_environment(workspace: Path, port: int) -> None:
    """Write an environment file in which every system has this port."""
    url = f"http://{HOST}:{port}"
    login = {"user": "user", "password": "${env:PASSWORD}"}
    source = {"host": HOST, "port": port, "database": "d", "admin": login, "connector": login}
    data = {"name": "silent", "source": source, "kafka": {"bootstrap_servers": f"{HOST}:{port}"}}
    path = workspace / "connectors" / "environments" / "silent.yaml"
    path.write_text(json.dumps({**data, "registry": {"url": url}, "connect": {"url": url}}), encoding="utf-8")


def wait_until_blocked(pid: int) -> None:
    """Wait until the process blocks in recv(). A signal just before the call would not interrupt it."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        pytest.skip("requires /proc to check that the command is blocked")

    blocked_polls = 0

    def poll() -> Observation[bool]:
        nonlocal blocked_polls
        state = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        blocked_polls = blocked_polls + 1 if state == "S" else 0
        # Several polls in a row, because the process may also block on a lock before the call.
        return Observation(True if blocked_polls >= 4 else None, f"state {state}")

    wait_for(f"process {pid} to sleep", poll, seconds=20, interval=0.05)


def start_blocked_command(workspace: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ENABLE_SIGINT + RUN[-1], "-e", "silent", "log-level"],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def imported_by(code: str) -> set[str]:
    """Return the names of the modules that the code imports in a new process."""
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    return {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def test_commands_do_not_import_spark() -> None:
    names = [name for commands in TASKS.values() for name in commands]
    imported = imported_by(f"from outbox_kit.cli.app import _load_command; [*map(_load_command, {names})]")
    assert {"pyspark", "delta", "outbox_spark", "supervisor", "testcontainers"} & imported == set()


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_imports_no_command(option: str) -> None:
    """Check that both options respond without the second that importing all commands takes."""
    imported = imported_by(f"from outbox_kit.cli.app import app; app(['{option}'], standalone_mode=False)")
    assert {name for name in imported if name.startswith("outbox_kit.cli.commands.")} == set()
    assert {"outbox_kit.deployment", "pydantic", "psycopg"} & imported == set()
