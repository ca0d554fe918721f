"""Pipeline files: what is read, and that every error names file, key and next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import Pipeline, load_pipeline, project_folder


def changed(workspace: Path, changes: dict[str, Any]) -> Path:
    """The example's pipeline file with values put in by dotted key; None removes one."""
    path = workspace / "connectors" / "library.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for dotted, value in changes.items():
        *parents, key = dotted.split("/")
        node = data
        for parent in parents:
            node = node.setdefault(parent, {})
        node[key] = value
        if value is None:
            del node[key]
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_the_example_is_read(library: Pipeline, repository: Path) -> None:
    assert library.name == "library"
    assert list(library.aggregates) == ["author", "book"]
    assert list(library.routed) == ["author", "book", "outbox-canary"]
    assert library.aggregates["book"].schema_file == repository / "schemas" / "book.avsc"
    assert library.source.columns.aggregate_id == "aggregate_id"


def test_names_that_follow_from_the_prefix(library: Pipeline) -> None:
    assert library.topic_of("book") == "library.book"
    assert library.subject_of("book") == "library.book-value"
    assert library.dead_letter_topic == "library.dead-letter"
    assert library.heartbeat_topic == "__debezium-heartbeat.library"
    assert library.transaction_topic == "library.transaction"


def test_the_canary_brings_its_own_schema(library: Pipeline) -> None:
    assert library.routed["outbox-canary"].schema_file.is_file()


def test_a_pipeline_does_not_change_once_read(library: Pipeline) -> None:
    with pytest.raises(ValueError, match="frozen"):
        library.name = "other"


def test_the_project_folder_holds_connectors(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
FREE = [
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

WRONG: list[tuple[dict[str, Any], str, str]] = [
    # an unknown key, with the one that was meant
    ({"agregates": {}}, "agregates: Extra inputs are not permitted", "did you mean 'aggregates'?"),
    ({"source/publicaton": "x"}, "source.publicaton: Extra inputs", "did you mean 'publication'?"),
    (
        {"aggregates/book/partition": 3},
        "aggregates.book.partition: Extra inputs",
        "did you mean 'partitions'?",
    ),
    ({"connector/zzzz": "x"}, "connector.zzzz: Extra inputs", "docs/pipeline.md"),
    # wrong types
    (
        {"aggregates/book/partitions": "many"},
        "aggregates.book.partitions: Input should be a valid integer",
        "docs",
    ),
    ({"aggregates/book/partitions": 0}, "aggregates.book.partitions: Input should be greater than", "docs"),
    (
        {"aggregates/book/topic": {"retention.ms": 5}},
        "aggregates.book.topic.retention.ms: Input should be a",
        "docs",
    ),
    (
        {"aggregates/book/compatibility": "SOME"},
        "aggregates.book.compatibility: Input should be 'NONE', ",
        "docs",
    ),
    ({"aggregates": {}}, "aggregates: Dictionary should have at least 1 item", "docs"),
    ({"aggregates": ["book"]}, "aggregates: Input should be a valid dictionary", "docs"),
    ({"source": "public.outbox_event"}, "source: Input should be", "docs"),
    ({"materializations": {}}, "materializations: Input should be a valid list", "docs"),
    # names that PostgreSQL or Kafka would refuse
    ({"source/slot": "Library-Outbox"}, "source.slot: String should match pattern", "docs"),
    ({"source/table": "outbox_event"}, "source.table: String should match pattern", "docs"),
    ({"source/publication": "a b"}, "source.publication: String should match pattern", "docs"),
    ({"prefix": "a/b"}, "prefix: String should match pattern", "docs"),
    # missing
    ({"name": None}, "name: Field required", "docs"),
    ({"source/slot": None}, "source.slot: Field required", "docs"),
    ({"aggregates/book/schema": None}, "aggregates.book.schema: Field required", "docs"),
    # what one part names must be in the other
    (
        {"materializations": [{"aggregate": "boook", "target": "warehouse", "table": "book"}]},
        "materialization names aggregate 'boook'; this file has: author, book",
        "docs",
    ),
    (
        {
            "materializations": [
                {"aggregate": "author", "target": "warehouse", "table": "t"},
                {"aggregate": "book", "target": "warehouse", "table": "t"},
            ]
        },
        "two materializations write table 't' of target 'warehouse'",
        "docs",
    ),
    # what would break the promise
    (
        {"aggregates/book/topic": {"cleanup.policy": "delete"}},
        "cleanup.policy is 'delete'; a topic keyed by aggregate_id must be 'compact'",
        "docs",
    ),
    (
        {"aggregates/book/topic": {"cleanup.policy": "compact,delete"}},
        "cleanup.policy is 'compact,delete'",
        "docs",
    ),
    *(
        (
            {"connector/overrides": {"max.batch.size": "7", key: "x"}},
            f"connector.overrides: Value error, {key} cannot be overridden: rows could be lost",
            "docs",
        )
        for key in PROTECTED
    ),
    (
        {"connector/overrides": {"transforms": "x", "errors.tolerance": "all"}},
        "errors.tolerance cannot be overridden",
        "docs",
    ),
    (
        {"aggregates/outbox-canary": {"schema": "schemas/book.avsc"}},
        "aggregate 'outbox-canary' is the kit's own; choose another name",
        "docs",
    ),
]


@pytest.mark.parametrize(("changes", "message", "hint"), WRONG, ids=[message for _, message, _ in WRONG])
def test_what_is_wrong_is_named(workspace: Path, changes: dict[str, Any], message: str, hint: str) -> None:
    path = changed(workspace, changes)
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("key", FREE)
def test_what_the_promise_does_not_hang_on_can_be_overridden(workspace: Path, key: str) -> None:
    found = load_pipeline(changed(workspace, {"connector/overrides": {key: "1"}}))
    assert found.connector.overrides == {key: "1"}


def test_several_errors_are_counted(workspace: Path) -> None:
    path = changed(workspace, {"name": None, "prefix": None, "connector/name": None})
    with pytest.raises(ConfigurationError, match=r"name: Field required \(and 2 more\)"):
        load_pipeline(path)


def test_one_table_in_two_targets_is_no_clash(library: Pipeline) -> None:
    assert {(entry.target, entry.table) for entry in library.materializations} >= {
        ("warehouse", "book"),
        ("lake", "book"),
    }


@pytest.mark.parametrize("name", ["dead-letter", "transaction"])
def test_an_aggregate_cannot_take_a_topic_of_the_kit(workspace: Path, name: str) -> None:
    """Its compacted topic would be the dead letter topic (or Debezium's): two owners, two clean-up policies."""
    path = changed(
        workspace,
        {f"aggregates/{name}": {"schema": "schemas/book.avsc"}, "connector/transaction_metadata": True},
    )
    with pytest.raises(ConfigurationError, match=name):
        load_pipeline(path)


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "connectors" / "none.yaml"
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    assert caught.value.message.startswith("cannot read ")
    assert caught.value.message.endswith(f"{path}: No such file or directory")
    assert caught.value.hint == "name the pipeline file with -p/--pipeline"


def test_bad_yaml_names_the_line(workspace: Path) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_text("name: library\nprefix: [library\nsource: x\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"not valid YAML: (?s:.*)line 3") as caught:
        load_pipeline(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a mapping, found NoneType"),
        (b"- a\n- b\n", "expected a mapping, found list"),
        (b"just words\n", "expected a mapping, found str"),
        (b"name: \xff\xfe\n", "UTF-8"),
        (b"name: a\x00b\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_pipeline(workspace: Path, content: bytes, message: str) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        load_pipeline(path)


def test_a_folder_is_no_file(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load_pipeline(workspace / "connectors")


def test_a_key_that_stands_twice_is_an_error(workspace: Path) -> None:
    """YAML's parser keeps the last one: an aggregate would vanish from the deployment without a word."""
    path = workspace / "connectors" / "library.yaml"
    text = path.read_text(encoding="utf-8")
    twice = "aggregates:\n  book: {schema: schemas/author.avsc, partitions: 9}\n"
    path.write_text(text.replace("aggregates:", twice, 1), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="book"):
        load_pipeline(path)
