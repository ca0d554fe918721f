"""`outbox lint`: exit codes, table and JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outbox_kit.cli.app import app
from outbox_kit.linting import RULES


def lint(workspace: Path, *arguments: str, environment: str = "production.example") -> Result:
    pipeline = str(workspace / "connectors" / "library.yaml")
    return CliRunner().invoke(app, ["-p", pipeline, "-e", environment, *arguments])


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def production(workspace: Path) -> Path:
    return workspace / "connectors" / "environments" / "production.example.yaml"


def test_passes_valid_files(workspace: Path) -> None:
    result = lint(workspace, "lint")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{len(RULES)} checks passed\n"


def test_json_has_the_structure_of_verify(workspace: Path) -> None:
    result = lint(workspace, "--output", "json", "lint")
    checks = json.loads(result.stdout)["checks"]
    assert [check["id"] for check in checks] == [rule.id for rule in RULES]
    assert {tuple(check) for check in checks} == {("id", "status", "seen", "expected", "remedy", "severity")}


def test_exits_with_1_for_a_failed_check(workspace: Path) -> None:
    replace(production(workspace), "replication_factor: 3", "replication_factor: 1")
    result = lint(workspace, "lint")
    assert result.exit_code == 1
    assert "lint.replication.writable" in result.stdout
    assert "correct kafka.min_insync_replicas" in result.stdout


@pytest.mark.parametrize(("option", "code"), [([], 0), (["--strict"], 1)])
def test_warning_fails_only_with_strict(workspace: Path, option: list[str], code: int) -> None:
    replace(production(workspace), "min_insync_replicas: 2", "min_insync_replicas: 3")
    result = lint(workspace, "lint", *option)
    assert result.exit_code == code
    assert "lint.replication.copies" in result.stdout
    assert f"{len(RULES) - 1} checks passed, 1 did not pass\n" in result.stderr


def test_arguments_win_over_the_global_option(workspace: Path) -> None:
    copy = workspace / "connectors" / "copy.yaml"
    copy.write_text("name: x", encoding="utf-8")
    result = lint(workspace, "lint", str(copy))
    assert result.exit_code == 1
    assert "copy.yaml" in result.stdout


def test_prints_a_remedy_once(workspace: Path) -> None:
    """A wrong template causes a finding in each of its files, but requires only one correction."""
    template = workspace / "connectors" / "templates" / "outbox-postgres.json.j2"
    replace(template, '"snapshot.mode": "no_data"', '"snapshot.mode": "initial"')
    other_file = workspace / "connectors" / "second.yaml"
    text = (workspace / "connectors" / "library.yaml").read_text(encoding="utf-8")
    other_file.write_text(
        re.sub(r"(?m)^materializations:(.|\n)*", "", text).replace("library", "second"), encoding="utf-8"
    )
    replace(other_file, "public.outbox_event", "public.second_event")
    result = lint(workspace, "lint", str(workspace / "connectors" / "library.yaml"), str(other_file))
    assert result.stdout.count("lint.setting.snapshot.mode") == 2
    assert result.stdout.count("set snapshot.mode") == 1
    assert "2 did not pass" in result.stderr


PLANTED = "pl4nted-s3cret"


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("environments/production.example.yaml", '"{{ env.OUTBOX_ADMIN_PASSWORD }}"', PLANTED),
        ("environments/production.example.yaml", '"{{ env.OUTBOX_KAFKA_PASSWORD }}"', PLANTED),
        ("environments/production.example.yaml", '"{{ env.OUTBOX_REGISTRY_PASSWORD }}"', PLANTED),
        ("environments/production.example.yaml", '"{{ env.OUTBOX_WAREHOUSE_PASSWORD }}"', PLANTED),
        ("environments/production.example.yaml", "https://connect", f"https://me:{PLANTED}@connect"),
        (
            "environments/production.example.yaml",
            "${file:/etc/kafka-connect/secrets.properties:library.password}",
            PLANTED,
        ),
        ("templates/outbox-postgres.json.j2", "{{ source.connector.password | tojson }}", f'"{PLANTED}"'),
        ("templates/outbox-postgres.json.j2", '"tasks.max": "1"', f'"tasks.max": "1", "driver.x.token": "{PLANTED}"'),
        ("library.yaml", "template: outbox-postgres ", f"overrides: {{value.converter.x.secret: {PLANTED}}} #"),
        ("library.yaml", "template: outbox-postgres ", f"overrides: {{driver.url: 'x://me:{PLANTED}@y'}} #"),
    ],
)
def test_reports_a_secret_without_printing_it(workspace: Path, output: str, file: str, old: str, new: str) -> None:
    replace(workspace / "connectors" / file, old, new)
    result = lint(workspace, "--output", output, "lint")
    assert result.exit_code == 1
    assert PLANTED not in result.stdout + result.stderr


def test_connect_option_requires_only_its_secrets(workspace: Path, free_port: int) -> None:
    replace(production(workspace), "https://connect.example.internal:8083", f"http://127.0.0.1:{free_port}")
    result = lint(workspace, "lint", "--connect")
    assert result.exit_code == 1
    assert "cannot reach Kafka Connect" in str(result.exception)
