"""The command line: exit codes, what goes to stdout, what goes to stderr."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from outbox_kit import __version__, deployment, verification
from outbox_kit.changes import Change
from outbox_kit.checking import Check, Status
from outbox_kit.cli import main
from outbox_kit.cli.app import app
from outbox_kit.errors import ConfigurationError
from outbox_kit.waiting import Seen, wait_for

RUN = [sys.executable, "-c", "from outbox_kit.cli import main; main()"]
SECRETS = {
    "OUTBOX_ADMIN_PASSWORD": "admin-s3cret",
    "OUTBOX_KAFKA_PASSWORD": "kafka-s3cret",
    "OUTBOX_REGISTRY_PASSWORD": "registry-s3cret",
}
Outbox = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def outbox(workspace: Path) -> Outbox:
    """The command as a process of its own, in the workspace."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
        return subprocess.run(
            [*RUN, *arguments],
            cwd=workspace,
            env={**variables, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture
def called(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """main() in this process, which is quicker: exit code, stdout, stderr."""
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(workspace)
        monkeypatch.setattr(sys, "argv", ["outbox", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return code if isinstance(code, int) else 1 if code else 0, *capsys.readouterr()

    for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
        monkeypatch.delenv(name)
    yield run
    signal.signal(signal.SIGTERM, handler)


def test_a_missing_pipeline_file(outbox: Outbox) -> None:
    done = outbox("render", "-p", "connectors/none.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: cannot read ")
    assert error.endswith("connectors/none.yaml: No such file or directory")
    assert hint == "hint:  name the pipeline file with -p/--pipeline"


def test_debug_shows_where_it_was_raised(called: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = called("render", "--debug", "-p", "connectors/none.yaml")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-2].startswith("error: cannot read ")


def test_an_unknown_command_is_usage(outbox: Outbox) -> None:
    done = outbox("deploi")
    assert (done.returncode, done.stdout) == (2, "")
    assert "deploi" in done.stderr


def test_render_prints_json_and_nothing_else(outbox: Outbox) -> None:
    done = outbox("render", "-e", "production.example", **SECRETS)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["name"] == "library-outbox"
    assert printed["config"]["database.password"].startswith("${file:")
    assert printed["config"]["transforms.outbox.aggregate.book.schema.1.id"] == "(known after apply)"
    assert "s3cret" not in done.stdout


def test_render_asks_for_no_secret(called: Callable[..., tuple[int, str, str]]) -> None:
    """It is pure: a review job renders the production config without production's passwords."""
    code, out, err = called("render", "-e", "production.example")
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
def test_render_does_need_what_it_prints(
    called: Callable[..., tuple[int, str, str]], workspace: Path, old: str, new: str
) -> None:
    """An unset variable must not become an empty host name in a config that somebody will deploy."""
    folder = workspace / "connectors" / "environments"
    example = (folder / "production.example.yaml").read_text(encoding="utf-8")
    assert old in example
    (folder / "edited.yaml").write_text(example.replace(old, new), encoding="utf-8")
    code, out, err = called("render", "-e", "edited")
    assert (code, out) == (1, "")
    assert "environment variable UNSET is not set" in err


@pytest.mark.parametrize("service", ["registry", "connect"])
def test_render_needs_no_address_of_a_service(
    called: Callable[..., tuple[int, str, str]], workspace: Path, service: str
) -> None:
    folder = workspace / "connectors" / "environments"
    example = (folder / "production.example.yaml").read_text(encoding="utf-8")
    url = f"url: https://{service}.example.internal"
    assert url in example
    edited = re.sub(rf"{url}.*", 'url: "{{ env.UNSET }}"', example)
    (folder / "edited.yaml").write_text(edited, encoding="utf-8")
    code, out, err = called("render", "-e", "edited")
    assert (code, err) == (0, "")
    assert json.loads(out)["name"] == "library-outbox"


def test_the_stack_is_not_up(called: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = called("plan")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: the embedded stack is not up",
        "hint:  start it with `outbox stack up`",
    ]


def test_a_polite_kill_ends_like_control_c(workspace: Path) -> None:
    """The command waits for a pipeline file that is a pipe nobody writes to."""
    waiting = {sent: waiting_command(workspace, sent.name) for sent in (signal.SIGTERM, signal.SIGINT)}
    for sent, process in waiting.items():
        # Opens once the command has opened its end; the command then waits for what is never written.
        writer = os.open(workspace / "connectors" / f"{sent.name}.yaml", os.O_WRONLY)
        try:
            await_sleep(process.pid)
            process.send_signal(sent)
            out, err = process.communicate(timeout=20)
        finally:
            os.close(writer)
            process.kill()
        assert (process.returncode, out) == (130, ""), sent
        assert "Traceback" not in err


def await_sleep(pid: int) -> None:
    """A signal that comes between Python's last look for signals and the read itself does not end the read."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        pytest.skip("needs /proc to see that the command waits")

    asleep = 0

    def look() -> Seen[bool]:
        nonlocal asleep
        state = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        # Several looks in a row: in the read, not on a lock on the way to it.
        return Seen(True if asleep >= 4 else None, f"state {state}")

    wait_for(f"process {pid} to sleep", look, seconds=20, every=0.05)


def waiting_command(workspace: Path, name: str) -> subprocess.Popen[str]:
    pipe = workspace / "connectors" / f"{name}.yaml"
    os.mkfifo(pipe)
    return subprocess.Popen(
        [*RUN, "render", "-p", str(pipe)],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_importing_the_command_line_loads_no_spark() -> None:
    code = "import outbox_kit.cli, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyspark", "delta", "outbox_spark", "supervisor", "testcontainers"} & {*done.stdout.split()} == set()


# --- in this process: what commands do with what they get


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    """Every command by its path, groups among them."""
    yield path, command
    for name, entry in getattr(command, "commands", {}).items():
        yield from commands(entry, (*path, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) or "outbox" for path, _ in COMMANDS])
def test_every_command_and_option_has_help(path: tuple[str, ...], command: Any) -> None:  # noqa: ANN401
    assert command.help
    result = CliRunner().invoke(app, [*path, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage:" in result.stdout
    undescribed = [entry.name for entry in command.params if not getattr(entry, "help", "")]
    assert undescribed == []


def test_the_commands() -> None:
    """A change of this list is a change of what users type: write it into the changelog."""
    assert sorted(" ".join(path) for path, _ in COMMANDS if path) == sorted(
        [
            "apply",
            "demo",
            "plan",
            "render",
            "stack",
            "stack down",
            "stack logs",
            "stack status",
            "stack up",
            "verify",
        ]
    )


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"outbox-kit {__version__}\n")


@pytest.mark.parametrize("output", ["xml", ""])
def test_an_unknown_output_is_usage(output: str) -> None:
    result = CliRunner().invoke(app, ["--output", output, "plan"])
    assert result.exit_code == 2
    assert result.stdout == ""


CHANGES = [
    Change("kafka", "topic library.book", "create", "newest state of every book", "", "4 partitions, compact"),
    Change("connect", "connector c", "update", "restarts the task", "old", "new"),
]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Callable[..., list[str]]:
    """A deployment whose plan is known; returns the list of what was really applied."""

    def known(changes: list[Change]) -> list[str]:
        applied: list[str] = []

        def apply(*_: object, **__: object) -> list[Change]:
            applied.extend(change.object for change in changes)
            return changes

        monkeypatch.setattr(deployment, "make_plan", lambda *_, **__: changes)
        monkeypatch.setattr(deployment, "apply", apply)
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(workspace)
        monkeypatch.setenv("OUTBOX_ENVIRONMENT", "production.example")
        return applied

    return known


def test_plan_with_changes_exits_with_3(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    result = CliRunner().invoke(app, ["plan"])
    assert (result.exit_code, result.stderr) == (3, "")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["system", "kafka", "connect"]
    assert "old → new" in result.stdout


def test_plan_without_changes(planned: Callable[..., list[str]]) -> None:
    planned([])
    result = CliRunner().invoke(app, ["plan"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no changes: everything is as the files say\n"


@pytest.mark.parametrize("changes", [[], CHANGES])
def test_plan_as_json(planned: Callable[..., list[str]], changes: list[Change]) -> None:
    planned(changes)
    result = CliRunner().invoke(app, ["--output", "json", "plan"])
    printed = json.loads(result.stdout)
    assert [change["object"] for change in printed["changes"]] == [change.object for change in changes]
    assert all(
        change.keys() == {"system", "object", "action", "why", "before", "after"} for change in printed["changes"]
    )


def test_apply_never_asks_without_a_terminal(planned: Callable[..., list[str]]) -> None:
    applied = planned(CHANGES)
    result = CliRunner().invoke(app, ["apply"])
    assert (result.exit_code, applied) == (1, [])
    assert "error: not a terminal, and --yes was not given" in result.stderr
    assert "`outbox apply --yes`" in result.stderr
    assert "library.book" in result.stderr, "what it would do"
    assert result.stdout == "", "data of what was done, and nothing was"


def test_apply_with_yes(planned: Callable[..., list[str]]) -> None:
    applied = planned(CHANGES)
    result = CliRunner().invoke(app, ["--yes", "apply"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert applied == ["topic library.book", "connector c"]
    assert result.stderr == "2 changes made\n"


def test_apply_of_nothing_needs_no_yes(planned: Callable[..., list[str]]) -> None:
    planned([])
    result = CliRunner().invoke(app, ["apply"])
    assert (result.exit_code, result.stderr) == (0, "nothing to change\n")


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(("options", "recover"), [([], False), (["--recover"], True)])
def test_recover_reaches_plan_and_apply(
    planned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    options: list[str],
    recover: bool,
) -> None:
    """What is shown before the question must be what is done after it."""
    planned(CHANGES)
    heard: list[tuple[str, bool]] = []

    def make_plan(_: object, *, recover: bool) -> list[Change]:
        heard.append(("plan", recover))
        return CHANGES

    def apply(*_: object, recover: bool) -> list[Change]:
        heard.append(("apply", recover))
        return CHANGES

    monkeypatch.setattr(deployment, "make_plan", make_plan)
    monkeypatch.setattr(deployment, "apply", apply)
    assert CliRunner().invoke(app, ["--output", output, "apply", *options]).exit_code == 1
    assert CliRunner().invoke(app, ["--output", output, "--yes", "apply", *options]).exit_code == 0
    assert heard == [("plan", recover), ("apply", recover)]


def test_plan_does_not_recover(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    assert CliRunner().invoke(app, ["plan", "--recover"]).exit_code == 2


def test_apply_as_json_prints_one_document(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--output", "json", "--yes", "apply"])
    assert len(json.loads(result.stdout)["changes"]) == 2


def test_apply_as_json_that_is_refused_prints_no_table(planned: Callable[..., list[str]]) -> None:
    """Who asked for JSON reads stdout with a parser, also when the answer is no."""
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--output", "json", "apply"])
    assert result.exit_code == 1
    assert result.stdout == "" or json.loads(result.stdout)


GOOD = Check("kafka.topics", Status.PASS, "all 5", "all 5")
BAD = Check("connect.running", Status.FAIL, "no connector c", "RUNNING", "run `outbox apply`")
WARNING = Check("a.b", Status.WARN, "1", "2", "look")


@pytest.mark.parametrize(
    ("checks", "code", "words"),
    [
        ([GOOD], 0, ""),
        ([GOOD, WARNING], 0, "a.b: expected 2; look\n"),
        ([GOOD, BAD], 1, "connect.running: expected RUNNING; run `outbox apply`\n"),
    ],
)
def test_verify(
    planned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    checks: list[Check],
    code: int,
    words: str,
) -> None:
    planned([])
    monkeypatch.setattr(verification, "verify", lambda *_, **__: checks)
    table = CliRunner().invoke(app, ["verify"])
    assert (table.exit_code, table.stderr) == (code, words)
    assert [line.split()[0] for line in table.stdout.splitlines()] == [
        "check",
        *(check.id for check in checks),
    ]
    document = CliRunner().invoke(app, ["--output", "json", "verify"])
    assert (document.exit_code, document.stderr) == (code, "")
    printed = json.loads(document.stdout)["checks"]
    assert [check["id"] for check in printed] == [check.id for check in checks]
    assert all(check.keys() == {"id", "severity", "status", "seen", "expected", "remedy"} for check in printed)


def test_verify_hands_on_its_bound(planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    planned([])
    bounds: list[float] = []

    def verify(*_: object, canary_seconds: float) -> list[Check]:
        bounds.append(canary_seconds)
        return []

    monkeypatch.setattr(verification, "verify", verify)
    assert CliRunner().invoke(app, ["verify", "--canary-timeout", "7.5"]).exit_code == 0
    assert bounds == [7.5]
    assert CliRunner().invoke(app, ["verify", "--canary-timeout", "0"]).exit_code == 2


def test_expected_errors_reach_the_one_handler(
    planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned([])

    def fails(_: object) -> list[Change]:
        raise ConfigurationError("what", "how")

    monkeypatch.setattr(deployment, "make_plan", fails)
    assert isinstance(CliRunner().invoke(app, ["plan"]).exception, ConfigurationError)
