"""Precedence: pipeline file < environment file < --set < environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Overrides, Pipeline, load_environment, load_files, load_pipeline

MINIMAL = """name: here
source:
  host: db
  database: library
  admin: {user: owner, password: "{{ env.ADMIN_PASSWORD }}"}
  connector: {user: reader, password: "${env:X}"}
kafka:
  bootstrap_servers: kafka:9092
  client:
    sasl.password: "{{ env.KAFKA_PASSWORD }}"
registry: {url: http://registry}
connect: {url: http://connect}
targets:
  lake: {kind: delta, path: s3a://lake}
"""
ENVIRON = {"ADMIN_PASSWORD": "admin-s3cret", "KAFKA_PASSWORD": "kafka-s3cret"}


@pytest.fixture
def pipeline_file(workspace: Path) -> Path:
    """Return the example's pipeline file with an environment `here`."""
    write_environment(workspace, "")
    return workspace / "connectors" / "library.yaml"


def write_environment(workspace: Path, more: str) -> Path:
    """Write environments/here.yaml with `more` at its end."""
    path = workspace / "connectors" / "environments" / "here.yaml"
    path.write_text(MINIMAL + more, encoding="utf-8")
    return path


def load(pipeline_file: Path, *options: str, **environ: str) -> tuple[Pipeline, Environment]:
    return load_files(pipeline_file, "here", Overrides(options, {**ENVIRON, **environ}))


def read(model: Any, path: str) -> Any:  # noqa: ANN401 - any value of a model
    """Return the value at a path of attributes and keys, separated by slashes."""
    for part in path.split("/"):
        if isinstance(model, Mapping):
            model = model[part]
        else:
            model = model[int(part)] if isinstance(model, list) else getattr(model, part)
    return model


# --- order of precedence


OVERLAY = "pipeline: {aggregates: {book: {partitions: 12}}}\n"


@pytest.mark.parametrize(
    ("overlay", "options", "environ", "partitions"),
    [
        ("", (), {}, 4),
        (OVERLAY, (), {}, 12),
        (OVERLAY, ("aggregates.book.partitions=13",), {}, 13),
        (OVERLAY, ("aggregates.book.partitions=13", "aggregates.book.partitions=14"), {}, 14),
        (OVERLAY, ("aggregates.book.partitions=13",), {"OUTBOX__AGGREGATES__BOOK__PARTITIONS": "15"}, 15),
        ("", (), {"OUTBOX__AGGREGATES__BOOK__PARTITIONS": "15"}, 15),
    ],
)
def test_sources_override_in_order(
    workspace: Path,
    pipeline_file: Path,
    overlay: str,
    options: tuple[str, ...],
    environ: dict[str, str],
    partitions: int,
) -> None:
    write_environment(workspace, overlay)
    pipeline, _ = load(pipeline_file, *options, **environ)
    assert pipeline.aggregates["book"].partitions == partitions
    assert pipeline.aggregates["author"].partitions == 4
    assert pipeline.aggregates["book"].schema_file == workspace / "schemas" / "book.avsc"


def test_overlay_applies_to_one_environment(workspace: Path, pipeline_file: Path) -> None:
    write_environment(workspace, OVERLAY)
    without_environment = load_pipeline(pipeline_file, overrides=Overrides(environ={}))
    assert without_environment.aggregates["book"].partitions == 4
    other = load_pipeline(pipeline_file, "production.example", Overrides(environ={}))
    assert other.aggregates["book"].partitions == 4
    here = load_pipeline(pipeline_file, "here", Overrides(environ={}))
    assert here.aggregates["book"].partitions == 12, "without any secret"


def test_overlay_merges_mappings_and_replaces_other_values(workspace: Path, pipeline_file: Path) -> None:
    overlay = {
        "prefix": "eu.library",
        "source": {"slot": "eu"},
        "aggregates": {"book": {"topic": {"segment.ms": "5"}}, "review": {"schema": "schemas/book.avsc"}},
        "materializations": [{"aggregate": "review", "target": "lake", "table": "review"}],
    }
    write_environment(workspace, yaml.safe_dump({"pipeline": overlay}))
    pipeline, environment = load(pipeline_file)
    assert (pipeline.prefix, pipeline.name) == ("eu.library", "library")
    assert (pipeline.source.slot, pipeline.source.publication) == ("eu", "library_outbox")
    assert list(pipeline.aggregates) == ["author", "book", "review"]
    assert pipeline.aggregates["book"].topic == {"segment.ms": "5"}
    assert pipeline.aggregates["review"].schema_file == workspace / "schemas" / "book.avsc"
    assert [entry.table for entry in pipeline.materializations] == ["review"]
    assert environment.pipeline == overlay


@pytest.mark.parametrize(
    ("overlay", "location"),
    [
        ("pipeline:\n  aggregates:\n    book:\n      partitons: 12\n", "18: aggregates.book.partitons: unknown key"),
        ("pipeline:\n  source: {slot: Wrong}\n", "16: source.slot: found 'Wrong'"),
        ("pipeline:\n  source: nothing\n", "16: source: found text"),
        ("pipeline:\n  materializations:\n    - {aggregate: book}\n", "17: materializations.0.target: missing"),
    ],
)
def test_overlay_error_has_the_line_of_the_environment_file(
    workspace: Path, pipeline_file: Path, overlay: str, location: str
) -> None:
    path = write_environment(workspace, overlay)
    with pytest.raises(ConfigurationError) as caught:
        load(pipeline_file)
    assert caught.value.message.startswith(f"{path}:{location}")


def test_other_errors_keep_the_line_of_the_pipeline_file(workspace: Path, pipeline_file: Path) -> None:
    write_environment(workspace, "pipeline: {source: {slot: eu}}\n")
    text = pipeline_file.read_text(encoding="utf-8").replace("publication:", "publicaton:")
    pipeline_file.write_text(text, encoding="utf-8")
    line = next(number for number, message in enumerate(text.splitlines(), start=1) if "publicaton" in message)
    with pytest.raises(ConfigurationError, match=rf"library\.yaml:{line}: source\.publicaton: unknown key"):
        load(pipeline_file)


@pytest.mark.parametrize("overlay", ["pipeline: 5\n", "pipeline: [a]\n"])
def test_rejects_an_overlay_that_is_not_a_mapping(workspace: Path, pipeline_file: Path, overlay: str) -> None:
    write_environment(workspace, overlay)
    with pytest.raises(ConfigurationError, match=r"here\.yaml:15: pipeline: .*mapping"):
        load(pipeline_file)


# --- keys and values of --set

SET: list[tuple[str, str, Any]] = [
    ("aggregates.book.backfill.key=isbn", "pipeline/aggregates/book/backfill/key", ["isbn"]),
    ("aggregates.book.backfill.key=[shelf, row]", "pipeline/aggregates/book/backfill/key", ["shelf", "row"]),
    ("prefix=eu.library", "pipeline/prefix", "eu.library"),
    ("connector.transaction_metadata=true", "pipeline/connector/transaction_metadata", True),
    ("dead_letter.retention_days=7", "pipeline/dead_letter/retention_days", 7),
    ("source.columns.payload=body", "pipeline/source/columns/payload", "body"),
    ("aggregates.book.topic.segment.ms=5", "pipeline/aggregates/book/topic", {"segment.ms": "5"}),
    ("aggregates.book.topic={segment.ms: '5'}", "pipeline/aggregates/book/topic", {"segment.ms": "5"}),
    ("aggregates.book.partition_field=null", "pipeline/aggregates/book/partition_field", None),
    ("aggregates.a.schema=schemas/book.avsc", "pipeline/aggregates/a/partitions", 1),
    ("connector.overrides.max.batch.size=9", "pipeline/connector/overrides", {"max.batch.size": "9"}),
    ("materializations.1.table=books", "pipeline/materializations/1/table", "books"),
    ("materializations=[]", "pipeline/materializations", []),
    ("environment.kafka.replication_factor=1", "environment/kafka/replication_factor", 1),
    ("environment.kafka.cluster_id=012", "environment/kafka/cluster_id", "012"),
    ("environment.kafka.client.security.protocol=SSL", "environment/kafka/client/security.protocol", "SSL"),
    ("environment.targets.lake.path=a=b", "environment/targets/lake/path", None),
    (
        "environment.connect.workers=[http://a:1, http://b:1]",
        "environment/connect/workers",
        ["http://a:1", "http://b:1"],
    ),
    ("environment.source.host={{ env.ADMIN_PASSWORD }}", "environment/source/host", "admin-s3cret"),
    ("environment.connector.exactly_once=requested", "environment/connector/exactly_once", "requested"),
    ("environment.pipeline.aggregates.book.partitions=9", "pipeline/aggregates/book/partitions", 9),
]


@pytest.mark.parametrize(("option", "path", "value"), SET, ids=[option for option, _, _ in SET])
def test_set_overrides_values(workspace: Path, pipeline_file: Path, option: str, path: str, value: Any) -> None:  # noqa: ANN401
    pipeline, environment = load(pipeline_file, option)
    actual = read({"pipeline": pipeline, "environment": environment}, path)
    assert actual == (value if value is not None or "null" in option else str(workspace / "a=b"))


def test_set_supports_names_with_dots(workspace: Path, pipeline_file: Path) -> None:
    write_environment(workspace, 'pipeline: {aggregates: {"eu.book": {schema: schemas/book.avsc}}}\n')
    pipeline, _ = load(pipeline_file, "aggregates.eu.book.partitions=3")
    assert pipeline.aggregates["eu.book"].partitions == 3
    assert "eu" not in pipeline.aggregates


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "aggregates.book.partitons=3",
            "--set aggregates.book.partitons: aggregates.book.partitons: unknown key; did you",
        ),
        (
            "aggregates.book.partitions=many",
            "--set aggregates.book.partitions: aggregates.book.partitions: found 'many'",
        ),
        ("aggregates.boook.partitions=3", "--set aggregates.boook.partitions: aggregates.boook.schema: missing"),
        ("source=x", "--set source: source: found text; must be "),
        ("source.slot.name=x", "--set source.slot.name: the parent is neither a mapping nor a list"),
        ("materializations.9.table=x", "--set materializations.9.table: "),
        ("materializations.9=x", "--set materializations.9: the parent is neither a mapping nor a list"),
        ("materializations.x=x", "--set materializations.x: the parent is neither a mapping nor a list"),
        ("aggregates.book.partitions=[", "--set aggregates.book.partitions: the value is not valid YAML"),
        ("aggregates.book.partitions=2024-13-45", "--set aggregates.book.partitions: the value is not valid YAML"),
        (
            "environment.kafka.bootstrap=x",
            "--set environment.kafka.bootstrap: kafka.bootstrap: unknown key; did you mean",
        ),
        ("environment.source.port=x", "--set environment.source.port: source.port: found 'x'; must be a valid integer"),
        ("environment=x", "--set environment: a key of the environment file must follow"),
        ("enviroment.source.port=1", "--set enviroment.source.port: enviroment: unknown key"),
        ("environment.source.host={{ nope }}", "--set environment.source.host: source.host: 'nope' is undefined"),
        ("prefix", "--set: not in the form KEY=VALUE"),
        ("=x", "--set: not in the form KEY=VALUE"),
        ("a..b=x", "--set: not in the form KEY=VALUE"),
        ("", "--set: not in the form KEY=VALUE"),
    ],
)
def test_error_names_the_option(pipeline_file: Path, option: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(pipeline_file, option)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    "option",
    [
        "hunter2",
        "environment.source.admin.password.x=hunter2",
        "environment.source.admin.passwort=hunter2",
        "environment.source.connector.password=hunter2",
        "environment.source.admin=hunter2",
        "environment.kafka.client=hunter2",
        "environment.registry.token.x=hunter2",
    ],
)
def test_errors_contain_no_secret_value(pipeline_file: Path, option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(pipeline_file, option)
    assert "hunter2" not in caught.value.message + caught.value.hint


def test_does_not_parse_the_text_of_a_secret(pipeline_file: Path) -> None:
    _, environment = load(pipeline_file, "environment.source.admin.password=[012: #")
    assert environment.source.admin.password.get_secret_value() == "[012: #"


# --- variables

VARIABLES: list[tuple[str, str, str, Any]] = [
    ("OUTBOX__SOURCE__SLOT", "eu", "pipeline/source/slot", "eu"),
    ("outbox__source__slot", "eu", "pipeline/source/slot", "eu"),
    ("OUTBOX__DEAD_LETTER__PARTITIONS", "3", "pipeline/dead_letter/partitions", 3),
    ("OUTBOX__CONNECTOR__TRANSACTION_METADATA", "true", "pipeline/connector/transaction_metadata", True),
    ("OUTBOX__AGGREGATES__BOOK__TOPIC", "{segment.ms: '5'}", "pipeline/aggregates/book/topic", {"segment.ms": "5"}),
    ("OUTBOX__MATERIALIZATIONS__0__TABLE", "writers", "pipeline/materializations/0/table", "writers"),
    ("OUTBOX__ENVIRONMENT__KAFKA__REPLICATION_FACTOR", "1", "environment/kafka/replication_factor", 1),
    ("OUTBOX__ENVIRONMENT__KAFKA__CLIENT__SASL_PASSWORD", "x", "environment/kafka/client/sasl.password", "x"),
    ("OUTBOX__ENVIRONMENT__CONNECT__WORKERS", "[http://a]", "environment/connect/workers", ["http://a"]),
    ("OUTBOX__ENVIRONMENT__SOURCE__HOST", "{{ 7 * 7 }}", "environment/source/host", "{{ 7 * 7 }}"),
    ("OUTBOX__ENVIRONMENT__SOURCE__HOST", "a: b #c", "environment/source/host", "a: b #c"),
]


@pytest.mark.parametrize(("name", "text", "path", "value"), VARIABLES, ids=[f"{row[0]}={row[1]}" for row in VARIABLES])
def test_variables_override_values(pipeline_file: Path, name: str, text: str, path: str, value: Any) -> None:  # noqa: ANN401
    pipeline, environment = load(pipeline_file, **{name: text})
    assert read({"pipeline": pipeline, "environment": environment}, path) == value


def test_supports_keys_with_dots_and_dashes(workspace: Path, pipeline_file: Path) -> None:
    write_environment(
        workspace, 'pipeline: {aggregates: {book-review: {schema: schemas/book.avsc, topic: {segment.ms: "1"}}}}\n'
    )
    pipeline, _ = load(
        pipeline_file,
        OUTBOX__AGGREGATES__BOOK_REVIEW__PARTITIONS="3",
        OUTBOX__AGGREGATES__BOOK_REVIEW__TOPIC__SEGMENT_MS="2",
    )
    assert pipeline.aggregates["book-review"].partitions == 3
    assert pipeline.aggregates["book-review"].topic == {"segment.ms": "2"}


def test_variable_replaces_a_value_with_an_unset_variable(pipeline_file: Path) -> None:
    variables = {"KAFKA_PASSWORD": "x", "OUTBOX__ENVIRONMENT__SOURCE__ADMIN__PASSWORD": "{{ not. }} [an: expression"}
    actual = load_environment("here", pipeline_file, Overrides(environ=variables))
    assert actual.source.admin.password.get_secret_value() == "{{ not. }} [an: expression"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("OUTBOX__SOURCE__SLOTT", "x", "source.slott: unknown key; did you mean 'slot'?"),
        ("OUTBOX__SOURCE__SLOT", "X", "source.slot: found 'X'; must match"),
        ("OUTBOX__ENVIRONMENT__KAFKA__REPLICATION_FACTOR", "three", "kafka.replication_factor: found 'three'"),
        (
            "OUTBOX__ENVIRONMENT__SOURCE__CONNECTOR__PASSWORD",
            "hunter2",
            "source.connector.password: found a redacted value",
        ),
        ("OUTBOX__ENVIRONMENT__KAFKA__CLIENT__NEW_KEY", "x", "no key like 'new_key' in kafka.client"),
        ("OUTBOX__", "x", ": unknown key"),
        ("OUTBOX__ENVIRONMENT", "x", "a key of the environment file must follow `environment`"),
    ],
)
def test_error_names_the_variable(pipeline_file: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(pipeline_file, **{name: text})
    assert re.match(rf"environment variable {name}: .*{re.escape(message)}", f"{caught.value.message}")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("name", ["OUTBOX_PIPELINE", "OUTBOX_ADMIN_PASSWORD", "MY_OUTBOX__SOURCE__SLOT"])
def test_ignores_other_variables(pipeline_file: Path, name: str) -> None:
    pipeline, _ = load(pipeline_file, **{name: "x"})
    assert pipeline.source.slot == "library_outbox"


def test_defaults_to_the_process_environment(pipeline_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX__SOURCE__SLOT", "eu")
    assert load_pipeline(pipeline_file).source.slot == "eu"
    assert "eu" not in repr(Overrides())


# --- files named by the environment


@pytest.mark.parametrize("section", ["registry", "connect"])
@pytest.mark.parametrize("key", ["ca_file", "certificate_file", "key_file"])
def test_resolves_certificates_relative_to_the_project(
    workspace: Path, pipeline_file: Path, section: str, key: str
) -> None:
    option = f"environment.{section}.{key}=tls/some.pem"
    with pytest.raises(ConfigurationError) as caught:
        load(pipeline_file, option)
    path = workspace / "tls" / "some.pem"
    assert caught.value.message == f"--set environment.{section}.{key}: {section}.{key}: no file {path}"
    assert str(workspace) in caught.value.hint
    (workspace / "tls").mkdir()
    path.write_text("x", encoding="utf-8")
    _, environment = load(pipeline_file, option)
    assert read(environment, f"{section}/{key}") == path
    _, environment = load(pipeline_file, f"environment.{section}.{key}={path}")
    assert read(environment, f"{section}/{key}") == path


def test_does_not_require_unused_certificates(pipeline_file: Path) -> None:
    overrides = Overrides(("environment.connect.ca_file=/none.pem",), ENVIRON)
    actual = load_environment("here", pipeline_file, overrides, needs=("kafka", "registry"))
    assert actual.connect.ca_file == Path("/none.pem")
    with pytest.raises(ConfigurationError, match=r"no file /none\.pem"):
        load_environment("here", pipeline_file, overrides, needs=("connect",))


def test_reports_every_unset_variable(pipeline_file: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_environment("here", pipeline_file, Overrides(environ={}))
    assert [line.rpartition(": ")[2] for line in caught.value.message.splitlines()] == [
        "environment variable ADMIN_PASSWORD is not set",
        "environment variable KAFKA_PASSWORD is not set",
    ]
    assert caught.value.hint == "export ADMIN_PASSWORD=... KAFKA_PASSWORD=... and run again"


def test_protection_of_an_environment_cannot_be_overridden(workspace: Path, pipeline_file: Path) -> None:
    path = write_environment(workspace, "protected: true\n")
    for options, variables in (
        (["environment.protected=false"], {}),
        ([], {"OUTBOX__ENVIRONMENT__PROTECTED": "false"}),
        ([], {"OUTBOX__ENVIRONMENT__PROTECTED": "null"}),
    ):
        with pytest.raises(ConfigurationError, match=f"protected: true in {path}"):
            load(pipeline_file, *options, **variables)
    assert load(pipeline_file, "environment.protected=true")[1].protected
    write_environment(workspace, "protected: false\n")
    assert load(pipeline_file, "environment.protected=true")[1].protected


@pytest.mark.parametrize("text", ["[" * 3000 + "]" * 3000, "[&a 1, *a]", "1:" * 30_000 + "1"])
def test_values_have_the_limits_of_files(pipeline_file: Path, text: str) -> None:
    for options, variables in (([f"aggregates={text}"], {}), ([], {"OUTBOX__AGGREGATES": text})):
        with pytest.raises(ConfigurationError, match="the value is not valid YAML"):
            load(pipeline_file, *options, **variables)
