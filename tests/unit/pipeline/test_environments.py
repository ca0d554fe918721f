"""Environment files: addresses, variables, values of the stack, and errors that do not contain secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import DeltaTarget, Environment, Overrides, PostgresTarget, load_environment

SECRETS = {
    "OUTBOX_ADMIN_PASSWORD": "admin-s3cret",
    "OUTBOX_KAFKA_PASSWORD": "kafka-s3cret",
    "OUTBOX_REGISTRY_PASSWORD": "registry-s3cret",
    "OUTBOX_WAREHOUSE_PASSWORD": "warehouse-s3cret",
}
SECTIONS = ("source", "kafka", "registry", "connect", "targets")


def pipeline_file(workspace: Path) -> Path:
    return workspace / "connectors" / "library.yaml"


def production(workspace: Path, environ: Mapping[str, str], needs: Collection[str] = SECTIONS) -> Environment:
    return load_environment("production.example", pipeline_file(workspace), Overrides(environ=environ), needs=needs)


def write_edited(workspace: Path, changes: dict[str, Any]) -> Path:
    """Write environments/production.yaml, the production example with changed values by slash-separated path."""
    folder = workspace / "connectors" / "environments"
    data = yaml.safe_load((folder / "production.example.yaml").read_text(encoding="utf-8"))
    for location, value in changes.items():
        *parents, key = location.split("/")
        node = data
        for parent in parents:
            node = node.setdefault(parent, {})
        node[key] = value
    (folder / "production.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    return folder / "production.yaml"


def load_edited(
    workspace: Path,
    changes: dict[str, Any],
    environ: Mapping[str, str] = SECRETS,
    needs: Collection[str] = SECTIONS,
) -> Environment:
    write_edited(workspace, changes)
    return load_environment("production", pipeline_file(workspace), Overrides(environ=environ), needs=needs)


def test_removed_target_kind_reports_its_replacements(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"targets\.lake\.kind: .*'parquet'") as error:
        load_edited(workspace, {"targets/lake": {"kind": "parquet", "path": "snapshots"}})
    assert "--export-format parquet" in error.value.hint


def test_reads_the_production_example(workspace: Path) -> None:
    actual = production(workspace, SECRETS)
    assert actual.source.admin.password.get_secret_value() == "admin-s3cret"
    assert actual.kafka.client["sasl.password"] == "kafka-s3cret"
    assert actual.kafka.replication_factor == 3
    warehouse = actual.targets["warehouse"]
    assert isinstance(warehouse, PostgresTarget)
    assert (warehouse.password.get_secret_value(), warehouse.target_schema) == ("warehouse-s3cret", "library")


def test_keeps_placeholders_of_the_worker(workspace: Path) -> None:
    actual = production(workspace, SECRETS)
    assert actual.source.connector.password == "${file:/etc/kafka-connect/secrets.properties:library.password}"


@pytest.mark.parametrize(
    ("changes", "folder"),
    [
        ({}, "{root}/connectors"),
        ({"lock_folder": "build/locks"}, "{root}/build/locks"),
        ({"lock_folder": "/var/locks"}, "/var/locks"),
    ],
)
def test_lock_folder_is_relative_to_the_project(workspace: Path, changes: dict[str, Any], folder: str) -> None:
    assert load_edited(workspace, changes).lock_folder == Path(folder.format(root=workspace))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("build/lake", "{root}/build/lake"),
        ("/data/lake", "/data/lake"),
        ("s3a://lake/library", "s3a://lake/library"),
        ("file:///data/lake", "file:///data/lake"),
    ],
)
def test_lake_path_is_relative_to_the_project(workspace: Path, path: str, expected: str) -> None:
    target = load_edited(workspace, {"targets/lake/path": path}).targets["lake"]
    assert isinstance(target, DeltaTarget)
    assert target.path == expected.format(root=workspace)


# --- variables


@pytest.mark.parametrize("missing", sorted(SECRETS))
@pytest.mark.parametrize("state", ["absent", "empty"])
def test_reports_variable_and_file_of_an_unset_secret(workspace: Path, missing: str, state: str) -> None:
    environ = {name: value for name, value in SECRETS.items() if name != missing}
    if state == "empty":
        environ[missing] = ""
    with pytest.raises(ConfigurationError) as caught:
        production(workspace, environ)
    path = workspace / "connectors" / "environments" / "production.example.yaml"
    key = {
        "OUTBOX_ADMIN_PASSWORD": "source.admin.password",
        "OUTBOX_KAFKA_PASSWORD": "kafka.client.sasl.password",
        "OUTBOX_REGISTRY_PASSWORD": "registry.password",
        "OUTBOX_WAREHOUSE_PASSWORD": "targets.warehouse.password",
    }[missing]
    lines = path.read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if missing in text)
    assert caught.value.message == f"{path}:{line}: {key}: environment variable {missing} is not set"
    assert caught.value.hint == f"export {missing}=... and run again"


@pytest.mark.parametrize(
    ("needs", "variables"),
    [
        (("source",), {"OUTBOX_ADMIN_PASSWORD"}),
        (("kafka", "registry"), {"OUTBOX_KAFKA_PASSWORD", "OUTBOX_REGISTRY_PASSWORD"}),
        (("targets",), {"OUTBOX_WAREHOUSE_PASSWORD"}),
        (("connect",), set()),
    ],
)
def test_needs_limits_which_variables_must_be_set(workspace: Path, needs: tuple[str, ...], variables: set[str]) -> None:
    environ = {name: SECRETS[name] for name in variables}
    assert production(workspace, environ, needs).name == "production"
    for missing in variables:
        with pytest.raises(ConfigurationError, match=missing):
            production(workspace, {name: SECRETS[name] for name in variables - {missing}}, needs)


@pytest.mark.parametrize(
    ("key", "text", "needs"),
    [
        ("source/admin/user", "{{ env.UNSET }}", ("targets",)),
        ("source/port", "{{ env.UNSET }}", ("targets",)),
        ("kafka/bootstrap_servers", "{{ env.UNSET }}", ("targets",)),
        ("registry/url", "{{ env.UNSET }}", ("source",)),
        ("connect/url", "http://{{ env.UNSET }}:8083", ("source",)),
    ],
)
def test_needs_applies_to_every_value(workspace: Path, key: str, text: str, needs: tuple[str, ...]) -> None:
    """Reading only `targets` does not require the database's address, port or users."""
    assert load_edited(workspace, {key: text}, SECRETS, needs).name == "production"


@pytest.mark.parametrize(
    ("key", "text"),
    [("lock_folder", "{{ env.UNSET }}"), ("connector/heartbeat_interval_ms", "{{ env.UNSET }}")],
)
def test_needs_does_not_apply_to_general_values(workspace: Path, key: str, text: str) -> None:
    """An unset variable in `lock_folder:` must not silently select another lock file."""
    with pytest.raises(ConfigurationError, match="variable UNSET"):
        load_edited(workspace, {key: text}, SECRETS, ("source", "kafka", "registry", "connect"))


@pytest.mark.parametrize(
    "password",
    [
        "plain",
        "a: b",
        "#comment",
        "'single' and \"double\"",
        "{{ 7 * 7 }}",
        "{% if true %}",
        "{# comment #}",
        "${env:HOME}",
        "back\\slash\\n",
        "- dash",
        "[1, 2]",
        "*anchor &x !tag",
        " spaces around ",
        "true",
        "012",
        "new\nline",
        "ends with a newline\n",
        "pässwörd ✓",
    ],
)
def test_secrets_may_contain_any_character(workspace: Path, password: str) -> None:
    actual = production(workspace, {name: password for name in SECRETS})
    assert actual.source.admin.password.get_secret_value() == password
    assert actual.kafka.client["sasl.password"] == password


def test_names_of_variables_may_begin_with_an_underscore(workspace: Path) -> None:
    actual = load_edited(workspace, {"source/host": "{{ env._HOST }}"}, {**SECRETS, "_HOST": "db"})
    assert actual.source.host == "db"


def test_expressions_may_contain_text_and_filters(workspace: Path) -> None:
    text = "a-{{ (env.HOST ~ env['X']) | lower | trim }}.{{ 'b' | default('c') | urlencode }}"
    actual = load_edited(workspace, {"source/host": text}, {**SECRETS, "HOST": " DB", "X": "1"})
    assert actual.source.host == "a-db1.b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ nope.X }}", "source.host: 'nope' is undefined"),
        ("{{ env.OUTBOX_ADMIN_PASSWORD.x.y }}", "source.host: "),
        ("{{ env. }}", "source.host: "),
        ("{{ env.A", "source.host: "),
        ("{{ 1 | nope }}", "source.host: not supported in an expression: filter nope"),
        ("{{ env | list }}", "source.host: not supported in an expression: filter list"),
        ("{{ 'a' | center(10000000000) }}", "source.host: not supported in an expression: filter center"),
        ("{{ 'a' * 10000000000 }}", "source.host: not supported in an expression: mul"),
        ("{% for i in range(9) %}{{ i }}{% endfor %}", "source.host: not supported in an expression: for"),
        ("{{ env" + ".a" * 300 + " }}", "source.host: "),
        ("{{ env.__init__.__globals__ }}", "source.host: access to attribute '__init__'"),
        ("{{ cycler.__init__.__globals__.os.getcwd() }}", "source.host: not supported in an expression: call"),
    ],
)
def test_reports_the_location_of_an_invalid_expression(workspace: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_edited(workspace, {"source/host": text})
    assert message in caught.value.message
    assert "{{ env.NAME }} or {{ stack.NAME }}" in caught.value.hint


@pytest.mark.parametrize("secret", sorted(SECRETS.values()))
@pytest.mark.parametrize("form", [repr, str])
def test_repr_and_str_contain_no_secret(workspace: Path, secret: str, form: Any) -> None:  # noqa: ANN401
    assert secret not in form(production(workspace, SECRETS))


@pytest.mark.parametrize(
    "changes",
    [
        {"source/port": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"registry/url": "{{ env.OUTBOX_REGISTRY_PASSWORD }}"},
        {"source/admin/passwort": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"source/admin": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"targets/warehouse/password": ["{{ env.OUTBOX_WAREHOUSE_PASSWORD }}"]},
        {"connector/exactly_once": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"source/host": "{{ env.OUTBOX_ADMIN_PASSWORD.x }}"},
        {"source/connector/password": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"targets/warehouse/kind": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"targets/warehouse": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"connect/workers": "{{ env.OUTBOX_ADMIN_PASSWORD }}"},
        {"source/port": "admin-s3cret@db"},
        {"kafka/client/sasl.password": ["admin-s3cret"]},
        {"kafka/client": {"sasl.password": {"x": "admin-s3cret"}}},
        {"source/admin": ["admin-s3cret"]},
        {"registry/token": 5, "registry/tokn": "registry-s3cret"},
    ],
)
def test_errors_contain_no_secret(workspace: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_edited(workspace, changes)
    assert "s3cret" not in caught.value.message + caught.value.hint
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("key", ["registry/url", "registry/connector_url", "connect/url", "connect/workers"])
@pytest.mark.parametrize("user_info", ["me:s3cret@", "s3cret@", "me:s3/cret@"])
def test_rejects_user_info_in_urls(workspace: Path, key: str, user_info: str) -> None:
    url = f"https://{user_info}host.example.internal/x"
    with pytest.raises(ConfigurationError) as caught:
        load_edited(workspace, {key: [url] if key.endswith("s") else url})
    assert "must not contain a user name or password: set " in caught.value.message
    assert "cret@" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("key", ["registry/url", "registry/connector_url", "connect/url", "connect/workers"])
def test_rejects_a_query_in_urls(workspace: Path, key: str) -> None:
    url = "https://host.example.internal/x?apikey=s3cret"
    with pytest.raises(ConfigurationError, match="remove the query") as caught:
        load_edited(workspace, {key: [url] if key.endswith("s") else url})
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize("key", ["source/host", "source/connector/host", "kafka/bootstrap_servers"])
def test_rejects_user_info_in_hosts(workspace: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match="must not contain a user name or password: set ") as caught:
        load_edited(workspace, {key: "me:s3cret@host.example.internal:9092"})
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize("key", ["source/host", "targets/warehouse/host"])
def test_rejects_a_connection_uri_as_host(workspace: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match=r"host: .*user name or password") as caught:
        load_edited(workspace, {key: "postgresql://me:s3cret@db.example.internal"})
    assert "s3cret" not in caught.value.message


def test_rejects_a_password_in_a_path_of_tables(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"targets\.lake\.path: .*must not contain") as caught:
        load_edited(workspace, {"targets/lake/path": "s3a://key:s3cret@bucket/lake"})
    assert "s3cret" not in caught.value.message
    path = "abfss://container@account.dfs.core.windows.net/lake"
    lake = load_edited(workspace, {"targets/lake/path": path}).targets["lake"]
    assert isinstance(lake, DeltaTarget)
    assert lake.path == path


@pytest.mark.parametrize(
    "password", ["hunter2: really", "*hunter2", "!hunter2", "!hunter2!x", "!!hunter2", "%hunter2", "2024-13-45"]
)
def test_error_of_invalid_yaml_does_not_quote_the_line(workspace: Path, password: str) -> None:
    """The line can contain a password, and some passwords make the YAML invalid if they are not quoted."""
    path = write_edited(workspace, {})
    path.write_text(f"name: x\nsource:\n  admin:\n    password: {password}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"production.yaml(:4)?: (not valid YAML|aliases)") as caught:
        load_environment("production", pipeline_file(workspace), Overrides(environ={}))
    assert not re.search("hunter2|13", caught.value.message.removeprefix(str(path)))


# --- errors of the file


def test_lists_the_known_environments(workspace: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_environment("prod", pipeline_file(workspace), Overrides(environ={}))
    path = workspace / "connectors" / "environments" / "prod.yaml"
    assert caught.value.message == f"environment 'prod': no file {path}"
    assert caught.value.hint == "choose one of: compose, compose-secure, local, production.example"


def test_rejects_the_name_of_another_environment(workspace: Path) -> None:
    """With that name, the lock file of the other environment would be used."""
    path = write_edited(workspace, {}).rename(workspace / "connectors" / "environments" / "staging.yaml")
    with pytest.raises(ConfigurationError) as caught:
        load_environment("staging", pipeline_file(workspace), Overrides(environ=SECRETS))
    line = path.read_text(encoding="utf-8").splitlines().index("name: production") + 1
    assert caught.value.message == f"{path}:{line}: name: found 'production'; must be 'staging', the name of the file"


def test_rejects_another_name_from_an_override(workspace: Path) -> None:
    overrides = Overrides(("environment.name=local",), environ=SECRETS)
    with pytest.raises(ConfigurationError, match=r"--set environment\.name.*'local'; .*'production'"):
        load_environment("production.example", pipeline_file(workspace), overrides)


# A password in plain text would be in the connector's config, which Connect's REST API returns to every client.
NOT_PLACEHOLDERS = [
    "",
    "hunter2",
    "{{ env.OUTBOX_ADMIN_PASSWORD }}",
    "$",
    "${}",
    "${env:X",
    "$env:X",
    "x${env:X}",
    "${env:X}x",
    " ${env:X}",
    "${env:X}\n",
    "${env:X}${env:Y}",
]


@pytest.mark.parametrize(
    "password", ["${env:X}", "${file:/a b/c.properties:d.e}", "${vault:secret/data/x:y}", "${dir:/run/secrets:x}"]
)
def test_accepts_placeholders_of_any_provider(workspace: Path, password: str) -> None:
    assert load_edited(workspace, {"source/connector/password": password}).source.connector.password == password


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kafka/bootstrap_server": "x"}, "kafka.bootstrap_server: unknown key; did you mean 'bootstrap_servers'?"),
        (
            {"connector/heartbeat_interval": 5},
            "connector.heartbeat_interval: unknown key; did you mean 'heartbeat_interval_ms'?",
        ),
        (
            {"targets/lake/pth": "x"},
            "targets.lake.pth: unknown key; did you mean 'path'?",
        ),
        (
            {"targets/lake/user": "x"},
            "targets.lake.user: unknown key; known keys: kind, path",
        ),
        ({"connector/exactly_once": "no"}, "connector.exactly_once: found 'no'; must be 'required' or 'requested' ("),
        ({"source/database": "a?b"}, "source.database: found 'a?b'; must match "),
        ({"source/connector/user": "a\x1bb"}, "source.connector.user: found 'a\\x1bb'; must match "),
        ({"source/connector/user": "it's"}, 'source.connector.user: found "it\'s"; must match '),
        ({"targets/warehouse/user": ""}, "targets.warehouse.user: found ''; must match "),
        ({"registry/url": "registry:8081"}, "registry.url: found 'registry:8081'; must match ^https?://"),
        *(
            (
                {"source/connector/password": password},
                "source.connector.password: found a redacted value; must match ",
            )
            for password in NOT_PLACEHOLDERS
        ),
        ({"source/port": 99999}, "source.port: found 99999; must be less than or equal to 65535 ("),
        ({"source/admin": "hunter2"}, "source.admin: found text; must be a mapping"),
        (
            {"targets/warehouse/kind": "oracle"},
            "targets.warehouse.kind: found 'oracle'; must be one of 'postgres', 'delta'",
        ),
        ({"targets/lake": {"path": "x"}}, "targets.lake.kind: missing; "),
        ({"targets/lake": "s3a://lake"}, "targets.lake: found "),
        ({"source/host": None}, "source.host: found null; must be a valid string ("),
        ({"connect/workers": "http://a:1"}, "connect.workers: found text; must be a list"),
    ],
)
def test_reports_each_error(workspace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_edited(workspace, changes)
    path = workspace / "connectors" / "environments" / "production.yaml"
    assert re.match(rf"{re.escape(str(path))}:\d+: {re.escape(message)}", caught.value.message)
    assert "docs/pipeline.md" in caught.value.hint
    assert "hunter2" not in caught.value.message
