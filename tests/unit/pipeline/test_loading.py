"""Pipeline files: loading, and errors that state the file, key and hint."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Pipeline, load_pipeline, project_folder
from outbox_kit.pipeline.names import TABLE_SYNTAX


def changed(workspace: Path, changes: dict[str, Any]) -> Path:
    """Change values of the example's pipeline file by slash-separated path. None removes a value."""
    path = workspace / "connectors" / "library.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for location, value in changes.items():
        *parents, key = location.split("/")
        node = data
        for parent in parents:
            node = node.setdefault(parent, {})
        node[key] = value
        if value is None:
            del node[key]
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_reads_the_example(library: Pipeline, repository: Path) -> None:
    assert library.name == "library"
    assert list(library.aggregates) == ["author", "book"]
    assert list(library.routed) == ["author", "book", "outbox-canary"]
    assert library.aggregates["book"].schema_file == repository / "schemas" / "book.avsc"
    assert library.source.columns.aggregate_id == "aggregate_id"


def test_derives_names_from_the_prefix(library: Pipeline) -> None:
    assert library.topic_of("book") == "library.book"
    assert library.subject_of("book") == "library.book-value"
    assert library.dead_letter_topic == "library.dead-letter"
    assert library.heartbeat_topic == "__debezium-heartbeat.library"
    assert library.transaction_topic == "library.transaction"


def test_canary_has_its_own_schema(library: Pipeline) -> None:
    assert library.routed["outbox-canary"].schema_file.is_file()


def test_pipeline_is_immutable(library: Pipeline) -> None:
    with pytest.raises(ValueError, match="frozen"):
        library.name = "other"


def test_project_folder_is_the_parent_of_connectors(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace / "connectors")
    assert project_folder(Path("library.yaml")) == workspace.resolve()


PROTECTED = [
    "topic.prefix",
    "slot.name",
    "slot.drop.on.stop",
    "publication.name",
    "publication.autocreate.mode",
    "table.include.list",
    "snapshot.mode",
    "errors.tolerance",
    "errors.max.retries",
    "offset.mismatch.strategy",
    "lsn.flush.mode",
    "key.converter",
    "value.converter",
    "value.converter.delegate.converter.type",
    "header.converter",
    "transforms",
    "transforms.outbox.source.epoch",
    "transforms.outbox.type",
    "heartbeat.interval.ms",
    "heartbeat.action.query",
    "message.prefix.exclude.list",
    "producer.override.max.block.ms",
]
ALLOWED = [
    "max.batch.size",
    "max.queue.size",
    "poll.interval.ms",
    "snapshot.fetch.size",
    "topic.prefix.other",
    "status.update.interval.ms",
    "database.sslmode",
    "database.tcpKeepAlive",
    "producer.override.linger.ms",
    "tasks.max",
]

INVALID: list[tuple[dict[str, Any], str]] = [
    # an unknown key, with a suggestion from the same level
    ({"agregates": {}}, "agregates: unknown key; did you mean 'aggregates'?"),
    ({"source/publicaton": "x"}, "source.publicaton: unknown key; did you mean 'publication'?"),
    ({"aggregates/book/partition": 3}, "aggregates.book.partition: unknown key; did you mean 'partitions'?"),
    ({"dead_letter/partition_field": 3}, "dead_letter.partition_field: unknown key; did you mean 'partitions'?"),
    (
        {"connector/zzzz": "x"},
        "connector.zzzz: unknown key; known keys: name, overrides, template, transaction_metadata",
    ),
    (
        {"materializations": [{"agregate": "book"}]},
        "materializations.0.agregate: unknown key; did you mean 'aggregate'",
    ),
    ({"source/columns": {"payloads": "x"}}, "source.columns.payloads: unknown key; did you mean 'payload'?"),
    # wrong types
    ({"aggregates/book/partitions": "many"}, "aggregates.book.partitions: found 'many'; must be a valid integer ("),
    ({"aggregates/book/partitions": 0}, "aggregates.book.partitions: found 0; must be greater than or equal to 1 ("),
    (
        {"aggregates/book/topic": {"retention.ms": 5}},
        "aggregates.book.topic.retention.ms: found 5; must be a valid",
    ),
    ({"aggregates/book/compatibility": "SOME"}, "aggregates.book.compatibility: found 'SOME'; must be 'NONE', "),
    ({"aggregates": {}}, "aggregates: found a mapping; must have at least 1 item"),
    ({"aggregates": ["book"]}, "aggregates: found a list; must be a mapping ("),
    ({"aggregates": {"a b": {"schema": "x"}}}, "aggregates.a b: found 'a b'; must match ^[A-Za-z0-9._-]+$"),
    ({"source": "public.outbox_event"}, "source: found text; must be "),
    ({"materializations": {}}, "materializations: found a mapping; must be a list"),
    (
        {"materializations": [{"aggregate": "book", "target": "warehouse", "table": "outbox_offsets"}]},
        "table 'outbox_offsets' contains the offsets",
    ),
    (
        {"materializations": [{"aggregate": "book", "target": "warehouse", "table": "book__tombstones"}]},
        "table 'book__tombstones' must not end with",
    ),
    ({"connector": 5}, "connector: found a scalar; must be a mapping"),
    ({"connector/template": date(2024, 1, 2)}, "connector.template: found 2024-01-02; must be a valid string"),
    ({"connector/transaction_metadata": "maybe"}, "connector.transaction_metadata: found 'maybe'; must be a valid boo"),
    ({"aggregates": {5: {"schema": "x"}}}, "aggregates.5: found 5; must be a valid string"),
    # names that PostgreSQL or Kafka would reject
    (
        {"source/slot": "Library-Outbox"},
        "source.slot: found 'Library-Outbox'; must match ^[a-z0-9_]+$ (Logical replication slot",
    ),
    ({"source/table": "outbox_event"}, "source.table: found 'outbox_event'; must match "),
    *(
        ({f"{key}/table": 'library."Book"'}, f"{key.replace('/', '.')}.table: found 'library.\"Book\"'; must match ")
        for key in ("source", "aggregates/book/backfill")
    ),
    ({"source/table": f"shop.{'x' * 64}"}, "source.table: found 'shop."),
    ({"source/columns": {"payload": "a$b"}}, "source.columns.payload: found 'a$b'; must match "),
    ({"source/publication": "a b"}, "source.publication: found 'a b'; must match "),
    ({"source/publication": "Shop"}, "source.publication: found 'Shop'; must match ^[a-z_][a-z0-9_]*$ (Publication"),
    ({"prefix": "a/b"}, "prefix: found 'a/b'; must match "),
    ({"prefix": "x" * 101}, f"prefix: found '{'x' * 59}...; must have at most 100 characters"),
    # missing
    ({"name": None}, "name: missing; Name of the pipeline"),
    ({"source/slot": None}, "source.slot: missing; Logical replication slot"),
    ({"aggregates/book/schema": None}, "aggregates.book.schema: missing; Avro schema (.avsc) of the payload"),
    # references between sections
    (
        {"materializations": [{"aggregate": "boook", "target": "warehouse", "table": "book"}]},
        "materialization of unknown aggregate 'boook'; known aggregates: author, book",
    ),
    (
        {
            "materializations": [
                {"aggregate": "author", "target": "warehouse", "table": "t"},
                {"aggregate": "book", "target": "warehouse", "table": "t"},
            ]
        },
        "two materializations write table 't' of target 'warehouse'",
    ),
    # settings that would break the guarantees
    (
        {"aggregates/book/topic": {"cleanup.policy": "delete"}},
        "cleanup.policy is 'delete'; the topic of an aggregate type must be 'compact'",
    ),
    (
        {"aggregates/book/topic": {"cleanup.policy": "compact,delete"}},
        "cleanup.policy is 'compact,delete'",
    ),
    *(
        (
            {"connector/overrides": {"max.batch.size": "7", key: "x"}},
            f"connector.overrides: {key} cannot be overridden, because rows could be lost",
        )
        for key in PROTECTED
    ),
    (
        {"connector/overrides": {"transforms": "x", "errors.tolerance": "all"}},
        "errors.tolerance cannot be overridden",
    ),
    (
        {"aggregates/outbox-canary": {"schema": "schemas/book.avsc"}},
        "aggregate type 'outbox-canary' is reserved; choose another name",
    ),
    (
        {"aggregates/dead-letter.acknowledged": {"schema": "schemas/book.avsc"}},
        "aggregate type 'dead-letter.acknowledged' is reserved",
    ),
    *(
        ({"prefix": prefix}, f"prefix {prefix!r} is reserved")
        for prefix in ("library.dead-letter", "library.transaction.eu", "__debezium-heartbeat")
    ),
]


@pytest.mark.parametrize(("changes", "message"), INVALID, ids=[message for _, message in INVALID])
def test_reports_each_error(workspace: Path, changes: dict[str, Any], message: str) -> None:
    path = changed(workspace, changes)
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    assert re.match(rf"{re.escape(str(path))}:\d+: ", caught.value.message)
    assert message in caught.value.message
    assert caught.value.hint == "see docs/pipeline.md for the keys and their allowed values"


BROKEN = """name: library
prefix: library
source:
  publication: library_outbox
  slot: Library
  tabel: x
aggregates:
  book:
    partitions: none
connector:
  name: [x]
  overrides: {a: 1, b: 2}
"""


def test_reports_every_error_with_its_line(workspace: Path) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_text(BROKEN, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    lines = caught.value.message.splitlines()
    assert [line.removeprefix(f"{path}:").split(";")[0] for line in lines] == [
        "6: source.tabel: unknown key",
        "5: source.slot: found 'Library'",
        "8: aggregates.book.schema: missing",
        "9: aggregates.book.partitions: found 'none'",
        "11: connector.name: found a list",
        "... and 2 more",
    ]


@pytest.mark.parametrize("table", ['"Library"."Book"', "book", "library.book.x", "library.my book"])
def test_names_the_syntax_of_tables(workspace: Path, table: str) -> None:
    """Statements quote both names, so quotes in the file would be part of the names."""
    path = changed(workspace, {"aggregates/book/backfill/table": table})
    with pytest.raises(ConfigurationError, match=r"aggregates\.book\.backfill\.table: found ") as caught:
        load_pipeline(path)
    assert TABLE_SYNTAX in caught.value.message


@pytest.mark.parametrize("key", [[], ["id", "id"], ["id", "no-name"], 5, {"id": 1}])
def test_rejects_an_invalid_key(workspace: Path, key: Any) -> None:  # noqa: ANN401 - invalid values
    path = changed(workspace, {"aggregates/book/backfill/key": key})
    with pytest.raises(ConfigurationError, match=r"aggregates\.book\.backfill\.key"):
        load_pipeline(path)


WITH_LIST = """name: library
prefix: library
source: {publication: p, slot: s}
aggregates:
  author:
    schema: schemas/author.avsc
    topic:
      retention.ms: 1
  book:
    schema: schemas/book.avsc
    partitions: 4
connector: {name: c}
materializations:
  - {aggregate: author, target: lake, table: author}
  - aggregate: book
    target: lake
"""


def test_reports_lines_of_list_items(workspace: Path) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_text(WITH_LIST, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    lines = caught.value.message.splitlines()
    assert [line.removeprefix(f"{path}:").split(";")[0] for line in lines] == [
        "8: aggregates.author.topic.retention.ms: found 1",
        "15: materializations.1.table: missing",
    ]


@pytest.mark.parametrize("key", ALLOWED)
def test_allows_overrides_that_do_not_affect_the_guarantees(workspace: Path, key: str) -> None:
    actual = load_pipeline(changed(workspace, {"connector/overrides": {key: "1"}}))
    assert actual.connector.overrides == {key: "1"}


def test_accepts_one_table_in_two_targets(library: Pipeline) -> None:
    assert {(entry.target, entry.table) for entry in library.materializations} >= {
        ("warehouse", "book"),
        ("lake", "book"),
    }


@pytest.mark.parametrize("name", ["dead-letter", "transaction"])
def test_rejects_an_aggregate_on_a_reserved_topic(workspace: Path, name: str) -> None:
    """Its compacted topic would have the name of the dead letter topic, or of Debezium's transaction topic."""
    path = changed(
        workspace,
        {f"aggregates/{name}": {"schema": "schemas/book.avsc"}, "connector/transaction_metadata": True},
    )
    with pytest.raises(ConfigurationError, match=name):
        load_pipeline(path)


def test_reports_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "connectors" / "none.yaml"
    path.parent.mkdir()
    (path.parent / "shop.yaml").touch()
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    assert caught.value.message.startswith("cannot read ")
    assert caught.value.message.endswith(f"{path}: No such file or directory")
    assert "OUTBOX_PIPELINE; existing files: " in caught.value.hint
    assert caught.value.hint.endswith("connectors/shop.yaml")


def test_reports_the_line_of_invalid_yaml(workspace: Path) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_text("name: library\nprefix: [library\nsource: x\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"library.yaml:3: not valid YAML: ") as caught:
        load_pipeline(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a mapping, found NoneType"),
        (b"- a\n- b\n", "expected a mapping, found list"),
        (b"just text\n", "expected a mapping, found str"),
        (b"name: \xff\xfe\n", "UTF-8"),
        (b"name: a\x00b\n", "not valid YAML"),
    ],
)
def test_rejects_a_file_that_is_not_a_pipeline(workspace: Path, content: bytes, message: str) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        load_pipeline(path)


def test_rejects_a_folder(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load_pipeline(workspace / "connectors")


def test_rejects_a_duplicate_key(workspace: Path) -> None:
    """PyYAML uses the last duplicate, so an aggregate would be missing in the deployment without an error."""
    path = workspace / "connectors" / "library.yaml"
    text = path.read_text(encoding="utf-8")
    duplicate = "aggregates:\n  book: {schema: schemas/author.avsc, partitions: 9}\n"
    path.write_text(text.replace("aggregates:", duplicate, 1), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="book"):
        load_pipeline(path)
