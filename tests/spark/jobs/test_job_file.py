"""Job files contain no secrets, are strictly validated, and are sufficient to run jobs without the deploy tool."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.spark.job_files import CATALOG_SECRETS, ENVIRONMENT, PROJECT, job, pipeline, write_job_file

from outbox_common.pipeline_files import UsageError
from outbox_events.errors import ConfigurationError
from outbox_events.http_session import HttpEndpoint
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.materialize import main
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.jobs.from_pipeline import load_jobs
from outbox_spark.jobs.job_file import VERSION, as_text, read_jobs, variables
from outbox_spark.jobs.model import (
    DeltaTarget,
    IcebergTarget,
    MaterializeOptions,
    Mode,
    PostgresTarget,
    RecordFormat,
    Target,
)

__all__ = ["pipeline"]  # the fixture

SECRETS = ("r3gistry", "t4rget", "k4fka")


OPTIONS = MaterializeOptions(Mode.HISTORY, RecordFormat.JSON, RecordFormat.JSON_WITH_SCHEMA, 3, 7200, max_quarantined=0)


@pytest.mark.parametrize(
    "target",
    [
        PostgresTarget("h", 5432, "d", "u", "p", "s"),
        DeltaTarget("s3a://lake/x"),
        IcebergTarget("ns", {"type": "rest", "uri": "http://c"}),
    ],
)
def test_reads_back_what_was_written(target: Target, tmp_path: Path) -> None:
    jobs = [job(target), job(target, aggregate="author", options=OPTIONS)]
    assert read_jobs(write_job_file(tmp_path, as_text(jobs)), {}) == jobs


def test_selects_jobs(tmp_path: Path) -> None:
    jobs = [job(), job(aggregate="author"), job(aggregate="author", target_name="warehouse")]
    path = write_job_file(tmp_path, as_text(jobs))
    assert read_jobs(path, {}, aggregates=["author"]) == jobs[1:]
    assert read_jobs(path, {}, aggregates=["author"], targets=["lake"]) == [jobs[1]]


@pytest.mark.parametrize(
    ("aggregates", "targets", "message"),
    [
        (["reader"], [], "no aggregate or target reader"),
        ([], ["lake", "lak"], "no aggregate or target lak"),
        (["book"], ["warehouse"], "no materialization is selected"),
    ],
)
def test_a_wrong_selection_is_wrong_usage(
    tmp_path: Path, aggregates: list[str], targets: list[str], message: str
) -> None:
    """A misspelled name must not select fewer tables than the user named."""
    jobs = [job(), job(aggregate="author", target_name="warehouse")]
    path = write_job_file(tmp_path, as_text(jobs))
    with pytest.raises(UsageError, match=message) as caught:
        read_jobs(path, {}, aggregates=aggregates, targets=targets)
    assert "author -> warehouse" in caught.value.hint


def test_resolves_references_and_reports_every_missing_one(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "${env:HOST}:9092", "sasl.password": "${env:SASL}"}
    referring = job(kafka=kafka, registry=HttpEndpoint("http://r", "u", "${env:REGISTRY}"))
    path = write_job_file(tmp_path, as_text([referring]))
    actual = read_jobs(path, {"HOST": "b", "SASL": "$x{}", "REGISTRY": "${env:HOST}"})[0]
    assert actual.kafka == {"bootstrap.servers": "b:9092", "sasl.password": "$x{}"}
    assert actual.registry.password == "${env:HOST}", "values of variables are not resolved again"
    with pytest.raises(ConfigurationError, match="not set: REGISTRY, SASL"):
        read_jobs(path, {"HOST": "b", "SASL": ""})


def test_does_not_require_variables_of_unselected_jobs(tmp_path: Path) -> None:
    other = job(aggregate="author", registry=HttpEndpoint("http://r", "u", "${env:ABSENT}"))
    assert read_jobs(write_job_file(tmp_path, as_text([job(), other])), {}, aggregates=["book"]) == [job()]


def test_accepts_invalid_jobs_that_are_not_selected(tmp_path: Path) -> None:
    data = json.loads(as_text([job(), job(aggregate="author")]))
    data["jobs"][1]["table"] = 5
    path = write_job_file(tmp_path, data)
    assert read_jobs(path, {}, aggregates=["book"]) == [job()]
    with pytest.raises(ConfigurationError) as caught:
        read_jobs(path, {}, aggregates=["author"])
    assert "`$.jobs[1].table`" in caught.value.message


def changed(location: tuple[Any, ...], value: object) -> dict[str, Any]:
    """Return the file of one PostgreSQL job with one changed value. The value `...` removes the key."""
    data: dict[str, Any] = json.loads(as_text([job(PostgresTarget("h", 1, "d", "u", "s3cret"))]))
    *path, last = location
    inner: Any = data
    for key in path:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return data


@pytest.mark.parametrize(
    ("location", "value", "path", "hint"),
    [
        (("version",), VERSION + 1, "version 2", "write the file again"),
        (("version",), ..., "`version`", "--write-job"),
        (("version",), True, "$.version", "--write-job"),
        (("jobs",), {}, "$.jobs", "--write-job"),
        (("other",), 1, "`other`", "version, jobs"),
        (("jobs", 0, "topics"), "x", "`topics` - at `$.jobs[0]`", "topic, table"),
        (("jobs", 0, "topic"), ..., "`topic` - at `$.jobs[0]`", "--write-job"),
        (("jobs", 0, "topic"), None, "$.jobs[0].topic", "--write-job"),
        (("jobs", 0, "target"), "x", "$.jobs[0].target", "--write-job"),
        (("jobs", 0, "target", "kind"), "oracle", "$.jobs[0].target.kind", "postgres, delta, iceberg"),
        (("jobs", 0, "target", "port"), "5432", "$.jobs[0].target.port", "--write-job"),
        (("jobs", 0, "target", "port"), True, "$.jobs[0].target.port", "--write-job"),
        (("jobs", 0, "target", "password"), 5, "$.jobs[0].target.password", "--write-job"),
        (("jobs", 0, "target", "path"), "x", "`path` - at `$.jobs[0].target`", "host, port"),
        (("jobs", 0, "kafka", "x"), 1, "$.jobs[0].kafka", "--write-job"),
        (("jobs", 0, "kafka"), [], "$.jobs[0].kafka", "--write-job"),
        (("jobs", 0, "registry"), [], "$.jobs[0].registry", "--write-job"),
        (("jobs", 0, "registry", "user"), "u", "`user` - at `$.jobs[0].registry`", "url, username"),
        (("jobs", 0, "options", "mode"), "soft", "$.jobs[0].options.mode", "hard-delete, soft-delete, history"),
        (("jobs", 0, "options", "tombstone_ttl"), "1h", "$.jobs[0].options.tombstone_ttl", "--write-job"),
    ],
)
def test_rejects_an_invalid_file_with_path_and_allowed_values(
    location: tuple[Any, ...], value: object, path: str, hint: str, tmp_path: Path
) -> None:
    file = write_job_file(tmp_path, changed(location, value))
    with pytest.raises(ConfigurationError) as caught:
        read_jobs(file, {})
    assert str(file) in caught.value.message
    assert path in caught.value.message
    assert hint in caught.value.hint
    assert "s3cret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "is not a job file")])
def test_rejects_a_file_that_is_not_a_job_file(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_jobs(write_job_file(tmp_path, text), {})


def test_reports_a_missing_job_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*none\.json: No such file"):
        read_jobs(tmp_path / "none.json", {})


# --- written from the pipeline file


def test_keeps_secret_references_unresolved(pipeline: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the variables are set, the job file contains the same jobs as the pipeline file."""
    file = pipeline.parent / "environments/testing.yaml"
    client = 'client: {security.protocol: SSL, sasl.username: "{{ env.KUSER }}", sasl.password: "{{ env.KPASS }}"}'
    file.write_text(ENVIRONMENT.replace("client: {security.protocol: SSL}", client))
    monkeypatch.setenv("KUSER", "kit")
    monkeypatch.setenv("KPASS", "k4fka")
    text = as_text(load_jobs(pipeline, "testing", without_secrets=True))
    assert variables(text) == ["KPASS", "KUSER", "REGISTRY_PASSWORD", "TARGET_PASSWORD"]
    assert not [secret for secret in SECRETS if secret in text]
    assert read_jobs(write_job_file(tmp_path, text)) == load_jobs(pipeline, "testing")


def test_writes_a_file_without_secret_variables_set(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY_PASSWORD")
    monkeypatch.delenv("TARGET_PASSWORD")
    assert variables(as_text(load_jobs(pipeline, "testing", without_secrets=True))) == [
        "REGISTRY_PASSWORD",
        "TARGET_PASSWORD",
    ]


def test_replaces_a_literal_secret_by_its_override_variable(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = pipeline.parent / "environments/testing.yaml"
    text = ENVIRONMENT.replace('"{{ env.TARGET_PASSWORD }}"', "t4rget")
    iceberg = "  ice: {kind: iceberg, namespace: n, catalog: {type: rest, s3.secret-access-key: k4fka}}"
    file.write_text(text.replace("client: {security.protocol: SSL}", 'client: {ssl.key.pem: "k4fka"}') + iceberg + "\n")
    data = pipeline.read_text().replace("{aggregate: author, target: lake,", "{aggregate: author, target: ice,")
    pipeline.write_text(data)
    actual = as_text(load_jobs(pipeline, "testing", without_secrets=True))
    assert not [secret for secret in SECRETS if secret in actual]
    names = {
        "OUTBOX__ENVIRONMENT__KAFKA__CLIENT__SSL_KEY_PEM": "k4fka",
        "OUTBOX__ENVIRONMENT__TARGETS__ICE__CATALOG__S3_SECRET_ACCESS_KEY": "k4fka",
        "OUTBOX__ENVIRONMENT__TARGETS__WAREHOUSE__PASSWORD": "t4rget",
    }
    assert variables(actual) == [*sorted(names), "REGISTRY_PASSWORD"]
    environ = {**names, "REGISTRY_PASSWORD": "r3gistry"}
    read = read_jobs(write_job_file(tmp_path, actual), environ)
    assert read == load_jobs(pipeline, "testing")
    for name, value in names.items():  # names that loading the pipeline resolves
        monkeypatch.setenv(name, value)
    assert load_jobs(pipeline, "testing") == read


def with_catalog(pipeline: Path, catalog: Mapping[str, str]) -> None:
    """Add a target `ice` with this catalog, to which the aggregate `author` is materialized."""
    settings = json.dumps({"kind": "iceberg", "namespace": "n", "catalog": {"type": "rest", **catalog}})
    (pipeline.parent / "environments/testing.yaml").write_text(f"{ENVIRONMENT}  ice: {settings}\n")
    data = pipeline.read_text().replace("{aggregate: author, target: lake,", "{aggregate: author, target: ice,")
    pipeline.write_text(data)


@pytest.mark.parametrize("name", CATALOG_SECRETS)
def test_replaces_each_secret_of_a_catalog(pipeline: Path, name: str) -> None:
    with_catalog(pipeline, {name: CATALOG_SECRETS[name]})
    text = as_text(load_jobs(pipeline, "testing", targets=["ice"], without_secrets=True))
    assert "k4fka" not in text
    key = re.sub(r"\W", "_", name.upper())
    assert variables(text) == [f"OUTBOX__ENVIRONMENT__TARGETS__ICE__CATALOG__{key}", "REGISTRY_PASSWORD"]


def test_retains_values_of_a_catalog_that_contain_references(pipeline: Path) -> None:
    catalog = {
        "uri": "jdbc:postgresql://db/catalog?user=me&password={{ env.CATALOG_PASSWORD }}&ssl=true",
        "header.Authorization": "Bearer {{ env.CATALOG_TOKEN }}",
        "header.X-Api-Key": "{{ env['API_KEY'] }}",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "warehouse": "abfss://container@account.dfs.core.windows.net/x",
    }
    with_catalog(pipeline, catalog)
    (author,) = load_jobs(pipeline, "testing", targets=["ice"], without_secrets=True)
    assert isinstance(author.target, IcebergTarget)
    expected = {name: re.sub(r"{{ env\W+(\w+).*?}}", r"${env:\1}", value) for name, value in catalog.items()}
    assert author.target.catalog == {"type": "rest", **expected}


def test_job_files_are_private(pipeline: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.touch(mode=0o644)
    assert main(["-p", str(pipeline), "-e", "testing", "--write-job", str(path)]) == Exit.DONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_rejects_user_info_in_the_url_of_a_job_file(tmp_path: Path) -> None:
    path = write_job_file(tmp_path, as_text([job(registry=HttpEndpoint("http://me:s3cret@r"))]))
    with pytest.raises(ConfigurationError, match=r"registry\.url contains") as caught:
        SchemaRegistry(read_jobs(path, {})[0].registry)
    assert "s3cret" not in caught.value.message + caught.value.hint


def test_command_writes_the_file_and_lists_requirements(
    pipeline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    assert main(["-p", str(pipeline), "-e", "testing", "--target", "lake", "--write-job", str(path)]) == Exit.DONE
    assert [item.aggregate for item in read_jobs(path)] == ["author", "book"]
    messages = "jobs in the file: 2; environment variables that they require: REGISTRY_PASSWORD\n"
    assert capsys.readouterr() == ("", messages)
    assert main(["-p", str(pipeline), "-e", "testing", "--target", "lake", "--write-job", "-"]) == Exit.DONE
    assert capsys.readouterr().out == path.read_text()
    assert main(["-p", str(pipeline), "-e", "testing", "--write-job", str(tmp_path)]) == Exit.REFUSED
    assert "error: cannot write" in capsys.readouterr().err


def test_rejects_an_environment_for_a_job_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_job_file(tmp_path, as_text([job()]))
    assert main(["--job", str(path), "-e", "production"]) == Exit.REFUSED
    assert "a job file is for a single environment" in capsys.readouterr().err


# --- without the deploy tool

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        others = {"outbox_kit", "fastavro", "jinja2", "pydantic", "pydantic_core", "rich", "typer", "yaml"}
        if top in others:
            raise ImportError(f"blocked: {name}", name=name)
sys.meta_path.insert(0, Blocked())
from outbox_spark.commands.materialize import main
sys.exit(main(sys.argv[1:]))
"""


def without_deploy_tool(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, *options]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)


def test_reads_a_job_file_without_the_deploy_tool(tmp_path: Path) -> None:
    """All modules are imported, and then the run fails because the target is unreachable."""
    path = write_job_file(tmp_path, as_text([job(PostgresTarget("127.0.0.1", 1, "d", "u", "p"))]))
    done = without_deploy_tool("--job", str(path), "--dry-run")
    assert "error: library.book -> lake.book: PostgreSQL at 127.0.0.1:1/d" in done.stderr
    assert done.returncode == Exit.FAILED


def test_rejects_a_pipeline_file_without_the_deploy_tool() -> None:
    done = without_deploy_tool("-p", "connectors/library.yaml")
    assert "error: reading a pipeline file requires the Python package" in done.stderr
    assert "--job" in done.stderr
    assert done.returncode == Exit.REFUSED
