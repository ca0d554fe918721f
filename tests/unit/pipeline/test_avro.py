"""Schema files: rejected schemas, and the canonical text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fastavro.schema import fullname

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline.avro import (
    MAX_BRANCHES,
    MAX_LEVELS,
    MAX_NODES,
    fingerprint,
    read_schema,
    same_schema,
    without_docs,
)


def write_schema(folder: Path, content: str | bytes) -> Path:
    path = folder / "a.avsc"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def record(*fields: object, **more: object) -> str:
    return json.dumps({"type": "record", "name": "A", "fields": fields, **more})


@pytest.mark.parametrize("name", ["author", "book"])
def test_reads_the_example_schemas(repository: Path, name: str) -> None:
    path = repository / "schemas" / f"{name}.avsc"
    text = read_schema(path)
    assert json.loads(text) == json.loads(path.read_text(encoding="utf-8"))
    assert ": " not in text.split('"doc"', maxsplit=1)[0]
    assert fullname(json.loads(text)) == f"io.outboxkit.library.{name.capitalize()}"


def test_reports_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_schema(tmp_path / "none.avsc")
    assert caught.value.message == f"schema file {tmp_path}/none.avsc: No such file or directory"
    assert "schema:" in caught.value.hint


def nested_arrays(count: int) -> str:
    """Return a record with a field of `count` nested arrays. Its JSON has `count` + 4 levels."""
    opening, closing = '{"type": "array", "items": ' * count, "}" * count
    return f'{{"type": "record", "name": "A", "fields": [{{"name": "x", "type": {opening}"int"{closing}}}]}}'


def test_accepts_the_maximum_of_levels(tmp_path: Path) -> None:
    text = nested_arrays(MAX_LEVELS - 4)
    assert json.loads(read_schema(write_schema(tmp_path, text))) == json.loads(text)


@pytest.mark.parametrize("count", [MAX_LEVELS - 3, 900, 40_000])
def test_refuses_more_levels(tmp_path: Path, count: int) -> None:
    with pytest.raises(ConfigurationError, match=f"types are nested over {MAX_LEVELS} levels"):
        read_schema(write_schema(tmp_path, nested_arrays(count)))


def test_refuses_many_values(tmp_path: Path) -> None:
    """The limit of branches bounds the number of pairs that lint compares."""
    fields = [{"name": f"f{number}", "type": "int"} for number in range(MAX_NODES // 3)]
    with pytest.raises(ConfigurationError, match=f"more than {MAX_NODES} JSON values"):
        read_schema(write_schema(tmp_path, json.dumps({"type": "record", "name": "A", "fields": fields})))
    union = [{"type": "record", "name": f"R{number}", "fields": []} for number in range(MAX_BRANCHES + 1)]
    for branches in (union, union[:-1]):
        text = json.dumps({"type": "record", "name": "A", "fields": [{"name": "f", "type": branches}]})
        if len(branches) <= MAX_BRANCHES:
            assert json.loads(read_schema(write_schema(tmp_path, text)))["fields"][0]["type"] == branches
        else:
            with pytest.raises(ConfigurationError, match=f"a union has {len(branches)} branches"):
                read_schema(write_schema(tmp_path, text))


def test_does_not_wait_for_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.avsc")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_schema(tmp_path / "pipe.avsc")


def test_refuses_a_large_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="larger than 2000000 bytes"):
        read_schema(write_schema(tmp_path, record(doc="x" * 2_000_000)))


def test_refuses_a_number_of_many_digits(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too many digits"):
        read_schema(write_schema(tmp_path, f'{{"type": "fixed", "name": "A", "size": {"9" * 5000}}}'))


def test_reports_line_and_column_of_invalid_json(tmp_path: Path) -> None:
    path = write_schema(tmp_path, '{\n  "type": "record",\n  "name": }\n')
    with pytest.raises(ConfigurationError) as caught:
        read_schema(path)
    assert caught.value.message == f"schema file {path}: not valid JSON: Expecting value at line 3 column 11"


@pytest.mark.parametrize(
    "content", ["[]", '"string"', "null", "3", '{"type": "string"}', '{"name": "A"}', '{"type": ["record"]}']
)
def test_the_top_level_must_be_a_record(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigurationError, match="the top level must be a record"):
        read_schema(write_schema(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        record({"name": "x", "type": "nope"}),
        record({"name": "x"}),
        record("x"),
        record({"name": "x", "type": "int", "default": "abc"}),
        record({"name": "x", "type": {"type": "enum", "name": "E"}}),
        record({"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["a", "a"]}}),
        record({"name": "x", "type": {"type": "array"}}),
        '{"type": "record", "fields": []}',
        # the parser's own TypeErrors
        record({"name": "x", "type": None}),
        '{"type": "record", "name": "A", "fields": 5}',
        '{"type": "record", "name": 1, "fields": []}',
        # accepted by the parser but rejected by a registry or the transform
        '{"type": "record", "name": "A"}',
        record({"name": "x", "type": "int"}, {"name": "x", "type": "string"}),
        record({"name": "x", "type": ["int", "int"]}),
        record({"name": "no name", "type": "int"}),
        # defaults that Avro's Java library changes
        record({"name": "x", "type": ["int", "long"], "default": 2**40}),
        record({"name": "x", "type": ["null", "long", "double"], "default": -1.5}),
        record({"name": "x", "type": "int", "default": -(2**31) - 1}),
        record({"name": "x", "type": "float", "default": 1e39}),
    ],
)
def test_reports_an_invalid_schema(tmp_path: Path, content: str) -> None:
    path = write_schema(tmp_path, content)
    with pytest.raises(ConfigurationError, match="not a valid Avro schema") as caught:
        read_schema(path)
    assert str(path) in caught.value.message


def named(namespace: str) -> dict[str, object]:
    return {"type": "record", "name": "B", "namespace": namespace, "fields": []}


@pytest.mark.parametrize(
    "content",
    [
        record(),
        record(namespace="io.outboxkit"),
        record({"name": "x", "type": ["null", "A"], "default": None}),
        record({"name": "x", "type": [named("one"), named("two")]}),
        record({"name": "x", "type": [named("one"), "null"]}, {"name": "y", "type": "one.B"}),
        record(
            {"name": "x", "type": ["null", {"type": "array", "items": ["null", "int"]}, {"type": "map", "values": "A"}]}
        ),
        record({"name": "x", "type": ["null", "long", "int"], "default": -(2**63)}),
        record({"name": "x", "type": ["float", "int"], "default": 3.4028234663852886e38}),
        record({"name": "x", "type": "double", "default": 1}),
        record({"name": "x", "type": {"type": "fixed", "name": "n.F", "size": 16}, "aliases": ["old"]}),
        record({"name": "x", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}}),
    ],
)
def test_accepts_a_valid_schema(tmp_path: Path, content: str) -> None:
    assert json.loads(read_schema(write_schema(tmp_path, content))) == json.loads(content)


def test_rejects_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_schema(write_schema(tmp_path, record().encode("utf-16")))


def test_keeps_non_ascii_characters(tmp_path: Path) -> None:
    text = read_schema(write_schema(tmp_path, record({"name": "x", "type": "string", "default": "ä<&'>"})))
    assert "ä<&'>" in text


# One schema in the notation of a file, and in the notation of Confluent's registry.
FILE_NOTATION = (
    '{"type": "record", "name": "io.acme.Book", "fields": [{"name": "t", "type": {"type": "string"}}, '
    '{"name": "x", "type": ["null", {"type": "int", "logicalType": "date"}], "default": null}]}'
)
REGISTRY_NOTATION = (
    '{"name":"Book","namespace":"io.acme","type":"record","fields":[{"name":"t","type":"string"},'
    '{"type":["null",{"logicalType":"date","type":"int"}],"name":"x","default": null}]}'
)


@pytest.mark.parametrize(
    ("schema", "other", "expected"),
    [
        (FILE_NOTATION, REGISTRY_NOTATION, True),
        (FILE_NOTATION, REGISTRY_NOTATION.replace('"t"', '"u"'), False),
        (FILE_NOTATION, REGISTRY_NOTATION.replace('"date"', '"time-millis"'), False),
        (FILE_NOTATION, REGISTRY_NOTATION.replace('"default": null', '"default": null, "doc": "x"'), False),
        (record({"name": "x", "type": ["int", "null"]}), record({"name": "x", "type": ["null", "int"]}), False),
    ],
)
def test_same_schema(schema: str, other: str, expected: bool) -> None:
    assert same_schema(schema, other) is expected


def test_without_docs_removes_every_doc(repository: Path) -> None:
    text = read_schema(repository / "schemas" / "book.avsc")
    assert '"doc"' in text
    assert '"doc"' not in without_docs(text)
    assert fingerprint(text) == fingerprint(without_docs(text))


def test_without_docs_keeps_data() -> None:
    nested = {"type": "record", "name": "B", "doc": "removed", "fields": [{"name": "doc", "type": "string"}]}
    text = record(
        {"name": "doc", "type": "string", "doc": "removed", "default": "doc"},
        {"name": "b", "type": nested, "default": {"doc": "retained"}},
        doc="removed",
    )
    assert json.loads(without_docs(text)) == {
        "type": "record",
        "name": "A",
        "fields": [
            {"name": "doc", "type": "string", "default": "doc"},
            {
                "name": "b",
                "type": {"type": "record", "name": "B", "fields": [{"name": "doc", "type": "string"}]},
                "default": {"doc": "retained"},
            },
        ],
    }


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (record({"name": "x", "type": "int"}, doc="text"), True),
        (record({"type": "int", "name": "x"}, namespace=""), True),
        (record({"name": "x", "type": "int", "default": 1}), True),
        (record({"name": "x", "type": "long"}), False),
        (record({"name": "y", "type": "int"}), False),
        (record({"name": "x", "type": "int"}, namespace="n"), False),
    ],
)
def test_fingerprint_covers_the_binary_encoding(other: str, equal: bool) -> None:
    actual = fingerprint(record({"name": "x", "type": "int"}))
    assert len(actual) == 64
    assert (actual == fingerprint(other)) is equal
