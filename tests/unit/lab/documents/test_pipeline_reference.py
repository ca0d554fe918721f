"""The reference of the keys, and the JSON Schemas for editors, which are generated from the models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from tests.unit.draft7 import errors

from outbox_kit.pipeline import Environment, Pipeline
from outbox_lab.documents import pipeline_reference
from outbox_lab.documents.pipeline_reference import environment_schema, pipeline_schema

MODELS = [entry for _, entries in pipeline_reference.REFERENCE_SECTIONS for entry in entries]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.__name__))
def test_every_key_has_a_description(model: type[BaseModel]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []
    assert model.__doc__


def test_page_lists_every_model() -> None:
    for model in (Pipeline, Environment):
        assert {model.__name__, *model.model_json_schema()["$defs"]} <= {entry.__name__ for entry in MODELS}


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401
    """Yield every property of a schema, with its path in the document."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from properties(item, f"{path}/{index}")
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "properties":
                yield from ((f"{path}/{name}", entry) for name, entry in value.items())
            if key not in ("default", "if"):
                yield from properties(value, f"{path}/{key}")


@pytest.mark.parametrize("schema", [pipeline_schema(), environment_schema()], ids=["pipeline", "environment"])
def test_every_schema_property_has_a_description(schema: dict[str, Any]) -> None:
    """A property with only a $ref has the description of the model."""
    actual = dict(properties(schema))
    assert len(actual) > 20
    definitions = schema["$defs"]

    def described(entry: dict[str, Any]) -> bool:
        name = entry.get("$ref", "").rsplit("/", 1)[-1]
        return bool(entry.get("description") or (name and definitions[name].get("description")))

    assert [path for path, entry in actual.items() if not described(entry)] == []


def test_page_contains_no_default_of_a_secret() -> None:
    assert "SecretStr" not in pipeline_reference.reference()
    assert max(map(len, pipeline_reference.reference().splitlines())) <= 120


# --- validation in editors

EXAMPLES = [("library.yaml", "pipeline"), ("environments/local.yaml", "environment")]
EXAMPLES += [("environments/production.example.yaml", "environment")]


def problems(kind: str, document: Any) -> list[str]:  # noqa: ANN401
    schema = pipeline_schema() if kind == "pipeline" else environment_schema()
    return list(errors(schema, document, schema))


def example(repository: Path, name: str) -> Any:  # noqa: ANN401
    return yaml.safe_load((repository / "connectors" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "kind"), EXAMPLES)
def test_examples_match_and_reference_their_schema(repository: Path, name: str, kind: str) -> None:
    assert problems(kind, example(repository, name)) == []
    path = repository / "connectors" / name
    first = path.read_text(encoding="utf-8").splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match
    named = (path.parent / match[1]).resolve()
    assert named == repository / "connectors" / f"{kind}.schema.json"
    assert json.loads(named.read_text(encoding="utf-8"))["$schema"].endswith("draft-07/schema#")


# file, path, new value, expected error in an editor
EDITED: list[tuple[str, str, Any, str]] = [
    ("library.yaml", "aggregates/book/partitions", 12, ""),
    ("library.yaml", "aggregates/book/partition_field", None, ""),
    ("library.yaml", "aggregates/book/backfill", {"table": "a.b", "key": "id", "query": "select 1"}, ""),
    ("library.yaml", "aggregates/book/partitions", "12", ".aggregates.book.partitions type"),
    ("library.yaml", "aggregates/book/partitions", 0, ".aggregates.book.partitions minimum"),
    ("library.yaml", "aggregates/book/partitons", 1, ".aggregates.book.partitons unknown"),
    ("library.yaml", "aggregates", {}, ".aggregates minProperties"),
    ("library.yaml", "aggregates/book", {}, ".aggregates.book.schema required"),
    ("library.yaml", "source/slot", "Not-Good", ".source.slot pattern"),
    ("library.yaml", "connector/overrides", {"a": 1}, ".connector.overrides.a type"),
    ("library.yaml", "nope", 1, ".nope unknown"),
    ("environments/local.yaml", "source/port", 5432, ""),
    ("environments/local.yaml", "source/port", "{{ env.PORT }}", ""),
    ("environments/local.yaml", "source/port", "5432", ".source.port anyOf"),
    ("environments/local.yaml", "source/port", 99999, ".source.port anyOf"),
    ("environments/local.yaml", "connector/exactly_once", "{{ env.EXACTLY_ONCE }}", ""),
    ("environments/local.yaml", "connector/exactly_once", "maybe", ".connector.exactly_once anyOf"),
    ("environments/local.yaml", "connect/workers", ["http://a", "{{ env.B }}"], ""),
    ("environments/local.yaml", "registry/url", "registry:8081", ".registry.url anyOf"),
    ("environments/local.yaml", "kafka/client", {"sasl.password": "{{ env.X }}"}, ""),
    ("environments/local.yaml", "targets/lake", {"kind": "delta"}, ".targets.lake oneOf"),
    ("environments/local.yaml", "targets/lake/kind", "oracle", ".targets.lake oneOf"),
    ("environments/local.yaml", "source/admin", {"user": "x"}, ".source.admin.password required"),
    ("environments/local.yaml", "kafka/bootstrap", "x", ".kafka.bootstrap unknown"),
    ("environments/local.yaml", "pipeline", {}, ""),
    ("environments/local.yaml", "pipeline", {"aggregates": {"book": {"partitions": 12}}}, ""),
    ("environments/local.yaml", "pipeline", {"source": {"slot": "eu"}, "aggregates": {}}, ""),
    ("environments/local.yaml", "pipeline", {"sorce": {}}, ".pipeline.sorce unknown"),
    (
        "environments/local.yaml",
        "pipeline",
        {"aggregates": {"book": {"partitions": "{{ env.X }}"}}},
        ".pipeline.aggregates.book.partitions type",
    ),
]


@pytest.mark.parametrize(("name", "path", "value", "error"), EDITED, ids=[f"{row[1]}={row[2]}" for row in EDITED])
def test_schema_rejects_invalid_files(repository: Path, name: str, path: str, value: Any, error: str) -> None:  # noqa: ANN401
    document = example(repository, name)
    *parents, key = path.split("/")
    node = document
    for parent in parents:
        node = node.setdefault(parent, {})
    node[key] = value
    actual = problems(dict(EXAMPLES)[name], document)
    assert error in actual if error else actual == []
