"""Loading of lint inputs without secrets and without a stack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_kit.linting import RULES, lint_files
from outbox_kit.linting.loading import read_environment, read_input
from outbox_kit.pipeline import Overrides
from outbox_kit.results.checks import Check, Status

PLANTED = "pl4nted-s3cret"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADMIN", "KAFKA", "REGISTRY", "WAREHOUSE"):
        monkeypatch.delenv(f"OUTBOX_{name}_PASSWORD", raising=False)


def edit(path: Path, **changes: Any) -> Path:  # noqa: ANN401 - YAML
    """Change values of a YAML file. Keys have `__` between the levels."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        *parents, key = name.split("__")
        node = data
        for parent in parents:
            node = node[parent]
        node[key] = value
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def failed(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.status is not Status.PASS]


def library(workspace: Path) -> Path:
    return workspace / "connectors" / "library.yaml"


def environment(workspace: Path, name: str = "production.example") -> Path:
    return workspace / "connectors" / "environments" / f"{name}.yaml"


ENVIRONMENTS = sorted(
    path.stem for path in (Path(__file__).resolve().parents[3] / "connectors" / "environments").glob("*.yaml")
)
PIPELINES = sorted((Path(__file__).resolve().parents[3] / "connectors").glob("*.yaml"))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_accepts_shipped_files_in_every_environment(name: str) -> None:
    """No environment variables are set, and no stack runs."""
    checks = lint_files(PIPELINES, name)
    assert failed(checks) == []
    assert [check.id for check in checks] == [rule.id for rule in RULES]


def test_loads_a_repeated_file_once(workspace: Path) -> None:
    folder = workspace / "connectors"
    assert failed(lint_files([folder / "library.yaml", folder / "environments" / ".." / "library.yaml"], "local")) == []


def test_checks_two_files_together(workspace: Path) -> None:
    copy = workspace / "connectors" / "copy.yaml"
    copy.write_text(library(workspace).read_text(encoding="utf-8"), encoding="utf-8")
    actual = {check.id for check in failed(lint_files([library(workspace), copy], "production.example"))}
    assert actual == {
        f"lint.unique.{name}"
        for name in (
            "pipeline-name",
            "connector",
            "topic-prefix",
            "replication-slot",
            "publication",
            "outbox-table",
            "materialized-table",
        )
    }


def test_invalid_file_does_not_hide_findings_of_another(workspace: Path) -> None:
    invalid = workspace / "connectors" / "invalid.yaml"
    invalid.write_text("name: [", encoding="utf-8")
    edit(library(workspace), aggregates__book={"schema": "schemas/none.avsc"})
    actual = failed(lint_files([invalid, library(workspace)], "local"))
    assert [check.id for check in actual] == ["lint.files", "lint.schema.file"]
    assert "invalid.yaml" in actual[0].seen
    assert "none.avsc" in actual[1].seen


def test_reports_a_template_that_does_not_render(workspace: Path) -> None:
    edit(library(workspace), connector__template="none")
    (check,) = failed(lint_files([library(workspace)], "local"))
    assert check.id == "lint.files"
    assert "no template" in check.seen
    assert "outbox-postgres" in check.remedy


def test_reports_an_unknown_environment_with_the_known_ones(workspace: Path) -> None:
    (check,) = failed(lint_files([library(workspace)], "nowhere"))
    assert (check.id, check.status) == ("lint.files", Status.FAIL)
    assert "production.example" in check.remedy


def test_checks_a_custom_template(workspace: Path) -> None:
    folder = workspace / "connectors" / "templates"
    text = (folder / "outbox-postgres.json.j2").read_text(encoding="utf-8")
    assert '"snapshot.mode": "no_data"' in text
    custom = text.replace('"snapshot.mode": "no_data"', '"snapshot.mode": "initial"')
    (folder / "custom.json.j2").write_text(custom, encoding="utf-8")
    edit(library(workspace), connector__template="custom")
    assert [check.id for check in failed(lint_files([library(workspace)], "local"))] == ["lint.setting.snapshot.mode"]


# --- environment files


def iceberg(**catalog: str) -> dict[str, Any]:
    return {"kind": "iceberg", "namespace": "n", "catalog": {"type": "rest", **catalog}}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"source__admin__password": PLANTED}, "source.admin.password"),
        ({"registry__password": PLANTED}, "registry.password"),
        ({"connect__token": PLANTED}, "connect.token"),
        ({"targets__warehouse__password": PLANTED}, "targets.warehouse.password"),
        ({"kafka__client": {"sasl.password": PLANTED}}, "kafka.client.sasl.password"),
        ({"kafka__client": {"ssl.key.pem": PLANTED}}, "kafka.client.ssl.key.pem"),
        ({"targets__ice": iceberg(uri=f"https://me:{PLANTED}@catalog.example.internal")}, "targets.ice.catalog.uri"),
        ({"targets__ice": iceberg(**{"header.X-Api": PLANTED})}, "targets.ice.catalog.header.X-Api"),
        (
            {"targets__ice": iceberg(**{"adls.connection-string.me": PLANTED})},
            "targets.ice.catalog.adls.connection-string.me",
        ),
    ],
)
def test_reports_a_plain_text_secret_without_its_value(workspace: Path, changes: dict[str, Any], key: str) -> None:
    edit(environment(workspace), **changes)
    checks = lint_files([library(workspace)], "production.example")
    (check,) = [check for check in checks if check.status is Status.FAIL]
    assert check.id == "lint.secret.environment"
    assert check.seen.startswith(f"{key} ")
    assert not [item for item in checks if PLANTED in repr(item)]


@pytest.mark.parametrize(
    "changes",
    [
        {"source__admin__password": "{{ env.X }}"},
        {"source__connector__password": "${env:X}"},
        {"connect__ca_file": "/etc/ssl/ca.pem"},
        {"connect__key_file": "/etc/ssl/key.pem"},
        {"kafka__client": {"ssl.key.location": "/etc/ssl/key.pem", "sasl.oauthbearer.token.endpoint.url": "https://x"}},
        {"registry__url": "https://registry.example.internal:8443/apis"},
        {"targets__ice": iceberg(**{"header.X-Iceberg-Access-Delegation": "vended-credentials"})},
        {"targets__ice": iceberg(uri="jdbc:postgresql://db/x?user=u&password={{ env.X }}&ssl=true")},
    ],
)
def test_accepts_values_that_are_not_secrets(workspace: Path, changes: dict[str, Any]) -> None:
    edit(environment(workspace), **changes)
    assert failed(lint_files([library(workspace)], "production.example")) == []


def test_uses_a_substitute_for_every_variable(workspace: Path) -> None:
    changes = {
        "source__port": "{{ env.PORT_NOT_SET }}",
        "connect__url": "{{ env.URL_NOT_SET }}",
        "kafka__replication_factor": "{{ env.RF_NOT_SET }}",
        "kafka__min_insync_replicas": 1,
        "source__connector__password": "{{ env.PASSWORD_NOT_SET }}",
        "targets__warehouse__port": "{{ env.PORT_NOT_SET }}",
        "connect__workers": ["https://{{ env.HOST_NOT_SET }}:8083"],
    }
    edit(environment(workspace), **changes)
    actual, plain_text_secrets = read_environment("production.example", library(workspace))
    assert (actual.source.port, actual.connect.url) == (1, "https://unset.invalid")
    assert actual.connect.workers == ["https://unset:8083"]
    assert plain_text_secrets == ()


def test_uses_variables_that_are_set(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICAS", "2")
    edit(environment(workspace), kafka__replication_factor="{{ env.REPLICAS }}", kafka__min_insync_replicas=1)
    (check,) = failed(lint_files([library(workspace)], "production.example"))
    assert (check.id, check.status) == ("lint.replication.copies", Status.WARN)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"kafka__replication_factor": "many"}, "kafka.replication_factor"),
        ({"kafka__replicas": 3}, "kafka.replicas"),
        ({"source__port": "{{ env.PORT_NOT_SET }}x"}, "source.port"),
    ],
)
def test_rejects_an_invalid_environment_file_with_location(workspace: Path, changes: dict[str, Any], key: str) -> None:
    edit(environment(workspace), **changes)
    (check,) = failed(lint_files([library(workspace)], "production.example"))
    assert check.id == "lint.files"
    assert key in check.seen
    assert "production.example.yaml" in check.seen


def test_resolves_the_embedded_stack_without_running_it(workspace: Path) -> None:
    assert read_input(library(workspace), "local").is_local
    assert not read_input(library(workspace), "production.example").is_local


# --- precedence over the files


def test_secret_from_a_variable_is_not_plain_text(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX__ENVIRONMENT__SOURCE__ADMIN__PASSWORD", PLANTED)
    assert failed(lint_files([library(workspace)], "production.example")) == []


def test_checks_values_of_set_options(workspace: Path) -> None:
    overrides = Overrides(("environment.kafka.replication_factor=2", "environment.kafka.min_insync_replicas=1"))
    (check,) = failed(lint_files([library(workspace)], "production.example", overrides))
    assert check.id == "lint.replication.copies"


def test_checks_pipeline_values_changed_by_an_environment(workspace: Path) -> None:
    topic = {"delete.retention.ms": "1000"}
    edit(environment(workspace), pipeline={"aggregates": {"book": {"topic": topic}}})
    (check,) = failed(lint_files([library(workspace)], "production.example"))
    assert check.id == "lint.compaction.delete.retention.ms"
    assert failed(lint_files([library(workspace)], "local")) == []


@pytest.mark.parametrize(("references", "expected"), [(["schemas/status.avsc"], []), ([], ["lint.schema.file"])])
def test_resolves_types_of_other_files(workspace: Path, references: list[str], expected: list[str]) -> None:
    status = {"type": "enum", "name": "Status", "namespace": "x", "symbols": ["A"]}
    book = {"type": "record", "name": "Book", "namespace": "x", "fields": [{"name": "status", "type": "x.Status"}]}
    (workspace / "schemas" / "status.avsc").write_text(json.dumps(status), encoding="utf-8")
    (workspace / "schemas" / "book.avsc").write_text(json.dumps(book), encoding="utf-8")
    edit(library(workspace), aggregates__book={"schema": "schemas/book.avsc", "references": references})
    assert [check.id for check in failed(lint_files([library(workspace)], "local"))] == expected
