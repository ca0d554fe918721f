"""No output contains a secret. Every supported place has a secret, and all outputs, files and logs are searched."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import typer
import yaml
from psycopg.types.json import Jsonb
from tests.integration.support import run
from tests.variations import variations

from outbox_kit.cli.app import app
from outbox_kit.stack import StackState
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import find_processes

TABLE = "public.secretive_event"
# Secrets in addition to the stack's passwords. The servers ignore them (no SASL, no authentication), but
# outbox-kit loads and sends them, and must not print them.
PLANTED = {
    "KAFKA_PASSWORD": "planted-kafka-password",
    "REGISTRY_PASSWORD": "planted-registry-password",
    "CONNECT_TOKEN": "planted-connect-token",
    "TARGET_PASSWORD": "planted-target-password",
    "CATALOG_TOKEN": "planted-catalog-token",
    "STORAGE_KEY": "planted-storage-key",
}
PAYLOAD = "planted-payload"


@dataclass(frozen=True)
class PipelineWithSecrets:
    """A deployed pipeline with a secret in every supported place."""

    project: Path
    environ: dict[str, str]
    secrets: tuple[str, ...]

    def run(self, *arguments: str, **variables: str) -> str:
        """Return all output of a command, regardless of its exit code."""
        command = [sys.executable, "-c", "from outbox_kit.cli import main; main()"]
        command += ["-p", str(self.project / "connectors" / "secretive.yaml"), "-e", "secretive", *arguments]
        done = run(command, self.project, **{**self.environ, **variables})
        return done.stdout + done.stderr

    def shown(self, text: str) -> list[str]:
        """Return the names of the secrets in a text, never the secrets."""
        return [f"secret {number}" for number, secret in enumerate(self.secrets) if secret in text]


@pytest.fixture(scope="module")
def pipeline(project: Path, state: StackState, make_pipeline: Callable[..., Path]) -> PipelineWithSecrets:
    library = yaml.safe_load((project / "connectors" / "library.yaml").read_text())
    materializations = [{"aggregate": "book", "target": "ice", "table": "book"}]
    make_pipeline("secretive", aggregates=library["aggregates"], materializations=materializations)
    environment = yaml.safe_load((project / "connectors" / "environments" / "local.yaml").read_text())
    environment["name"] = "secretive"
    environment["source"]["admin"]["password"] = "{{ env.ADMIN_PASSWORD }}"
    environment["kafka"]["client"] = {"sasl.password": "{{ env.KAFKA_PASSWORD }}"}
    environment["registry"] |= {"username": "somebody", "password": "{{ env.REGISTRY_PASSWORD }}"}
    environment["connect"] |= {"token": "{{ env.CONNECT_TOKEN }}"}
    environment["targets"]["warehouse"]["password"] = "{{ env.TARGET_PASSWORD }}"
    catalog = {"type": "rest", "uri": "http://127.0.0.1:1", "header.X-Api-Key": "{{ env.CATALOG_TOKEN }}"}
    catalog |= {"s3.secret-access-key": "{{ env.STORAGE_KEY }}", "s3.sse.key": PLANTED["STORAGE_KEY"]}
    environment["targets"]["ice"] = {"kind": "iceberg", "namespace": "n", "catalog": catalog}
    (project / "connectors" / "environments" / "secretive.yaml").write_text(yaml.safe_dump(environment))
    environ = {**PLANTED, "ADMIN_PASSWORD": state.admin_password}
    secrets = (*PLANTED.values(), *state.passwords(), PAYLOAD)
    actual = PipelineWithSecrets(project, environ, secrets)
    printed = actual.run("apply", "--yes")
    assert "changes made" in printed, printed
    bad_row(state)
    return actual


def bad_row(state: StackState) -> None:
    """Write a row whose payload does not match a schema, so that it becomes a dead letter."""
    with psycopg.connect(state.postgres, autocommit=True) as connection:
        connection.execute(
            f"insert into {TABLE} (aggregate_type, aggregate_id, event_type, payload) values ('book', %s, 'x', %s)",
            (str(uuid4()), Jsonb({"title": PAYLOAD})),
        )


def commands() -> set[str]:
    """Return the full name of every command."""
    tree = typer.main.get_command(app)
    actual = set()
    for name in tree.commands:  # type: ignore[attr-defined]
        command = tree.get_command(typer.Context(tree), name)  # type: ignore[attr-defined]
        actual |= {f"{name} {inner}" for inner in getattr(command, "commands", {})} or {name}
    return actual


# Commands with their arguments, except commands that start or stop a stack, which print addresses with passwords.
# Commands that stop the pipeline come last.
ARGUMENTS: dict[str, list[list[str]]] = {
    "init": [[], ["--add", "missing=public.missing"]],
    "render": [[], ["--format", "sql"]],
    "lint": [[], ["--connect"], ["--output", "json"]],
    "plan": [[], ["--output", "json"], ["--save", "{folder}/plan.json"]],
    "apply": [["--yes"], ["--yes", "--set", "environment.connector.poll_interval_ms=7"]],
    "verify": [
        ["--html", "{folder}/report.html", "--junit", "{folder}/report.xml"],
        ["--no-canary", "--output", "json"],
    ],
    "status": [[], ["--output", "json"]],
    "doctor": [[], ["--output", "json"]],
    "backfill": [["book"]],
    "republish": [["book", "--key", "nobody"]],
    "adopt": [["nobody", "--yes"]],
    "log-level": [[]],
    "dead-letter list": [[], ["--all", "--output", "json"], ["--stale"]],
    "dead-letter replay": [["--all", "--yes"], ["--all", "--republish", "--yes"]],
    "dead-letter drop": [["--all", "--yes"]],
    "dead-letter acknowledge": [["--all", "--yes"]],
    "restart": [[]],
    "pause": [[]],
    "resume": [[]],
    "stop": [[]],
    "offsets show": [[]],
    "offsets export": [["{folder}/offsets.json"]],
    "offsets reset": [["--confirm", "secretive@local"]],
    "stuck": [["--older-than", "0"]],
    "prune": [["--dry-run", "--wait", "1"], ["--all", "--wait", "1", "--confirm", "secretive@local"]],
    "relay": [["--once"]],
    "senders list": [[], ["--output", "json"]],
    "senders recover": [["--all", "--yes"]],
    "recover": [["--yes", "--wait", "1"]],
    "destroy": [["--confirm", "secretive@local", "--drop-slot", "--delete-topics", "--delete-schemas"]],
}
# `dead-letter show` prints a payload on purpose.
SHOWS_PAYLOAD = {"dead-letter show"}
OWN_STACK = {"demo", "drill", "stack up", "stack down", "stack status", "stack logs"}


def test_covers_every_command() -> None:
    assert commands() - OWN_STACK - SHOWS_PAYLOAD == ARGUMENTS.keys()


def test_lock_file_contains_no_secret(pipeline: PipelineWithSecrets) -> None:
    (lock,) = pipeline.project.rglob("secretive.secretive.lock.json")
    assert not pipeline.shown(lock.read_text())


COMMAND_LINES = [(command, arguments) for command, variants in ARGUMENTS.items() for arguments in variants]


@pytest.mark.parametrize(
    ("command", "arguments"),
    variations(COMMAND_LINES, key=lambda line: line[0], name=lambda line: " ".join([line[0], *line[1]])),
)
def test_command_output_contains_no_secret(
    pipeline: PipelineWithSecrets, command: str, arguments: list[str], tmp_path: Path
) -> None:
    given = [argument.format(folder=tmp_path) for argument in arguments]
    printed = pipeline.run("--debug", *command.split(), *given)
    assert printed.strip()
    assert not pipeline.shown(printed)
    for report in tmp_path.iterdir():
        assert not pipeline.shown(report.read_text())


WRONG_PASSWORD = "planted-wrong-password"
UNREACHABLE_CONNECT = ["environment.connect.url=http://127.0.0.1:1", "environment.connect.workers=[]"]
# Rejected logins, a value of the wrong type, missing systems, and passwords in URLs.
FAILING: list[tuple[list[str], dict[str, str]]] = [
    (["plan"], {"ADMIN_PASSWORD": WRONG_PASSWORD}),
    (["verify", "--no-canary"], {"ADMIN_PASSWORD": WRONG_PASSWORD}),
    (["doctor"], {"ADMIN_PASSWORD": WRONG_PASSWORD}),
    (["plan", "--set", "environment.source.port=planted-payload"], {}),
    (["plan", *(part for value in UNREACHABLE_CONNECT for part in ("--set", value))], {}),
    (["plan", "--set", "environment.registry.url=http://127.0.0.1:1"], {}),
    (["plan"], {"OUTBOX__ENVIRONMENT__KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}),
    *(
        ([command], {f"OUTBOX__ENVIRONMENT__{section}__URL": f"http://somebody:{WRONG_PASSWORD}@127.0.0.1:1"})
        for command in ("plan", "lint", "render", "status")
        for section in ("REGISTRY", "CONNECT")
    ),
]


@pytest.mark.parametrize(("arguments", "variables"), variations(FAILING, key=lambda case: str(case[1] or case[0])))
def test_error_output_contains_no_secret(
    pipeline: PipelineWithSecrets, arguments: list[str], variables: dict[str, str]
) -> None:
    printed = pipeline.run("--debug", *arguments, **variables)
    assert "error" in printed or "fail" in printed
    assert WRONG_PASSWORD not in printed
    expected_secrets = pipeline.secrets if "source.port" not in str(arguments) else pipeline.secrets[:-1]
    assert not [secret for secret in expected_secrets if secret in printed]


def test_job_file_contains_no_secret(pipeline: PipelineWithSecrets, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    command = [sys.executable, "-m", "outbox_spark", "-e", "secretive", "--write-job", str(path)]
    command += ["-p", str(pipeline.project / "connectors" / "secretive.yaml")]
    done = run(command, pipeline.project, **pipeline.environ)
    assert done.code == 0, done.output
    text = path.read_text()
    assert "${env:CATALOG_TOKEN}" in text
    assert not pipeline.shown(text + done.output)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_files_with_secrets_are_private(pipeline: PipelineWithSecrets) -> None:
    """Only the owner of the stack can read its files that contain passwords."""
    folder = pipeline.project / "build" / "stack"
    data = folder / "data"
    files = [path for path in folder.rglob("*") if path.is_file() and data not in path.parents]
    secret_files = [path for path in files if pipeline.shown(path.read_bytes().decode(errors="replace"))]
    assert {"state.json", "supervisord.conf"} <= {path.name for path in secret_files}
    for path in secret_files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_process_arguments_contain_no_secret(pipeline: PipelineWithSecrets) -> None:
    """Every user of the machine can list process arguments with `ps`."""
    processes = find_processes(Layout(pipeline.project))
    assert {"connect", "registry", "postgres", "supervisor"} <= {process.service for process in processes}
    assert not pipeline.shown(" ".join(process.arguments for process in processes))


def test_service_logs_contain_no_secret(pipeline: PipelineWithSecrets) -> None:
    """Logs of worker, broker and registry after all commands above."""
    logs = list(pipeline.project.glob("build/stack/logs/*.log*"))
    assert logs
    for path in logs:
        assert not pipeline.shown(path.read_text(errors="replace")), path.name
