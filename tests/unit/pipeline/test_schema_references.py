"""Schemas that use types of other files: dependency order, text to register, and text with inlined types."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import parse_schema

from outbox_events.errors import ConfigurationError
from outbox_events.schemas.avro_schema import inline
from outbox_kit.pipeline import Aggregate
from outbox_kit.pipeline.avro import fingerprint, read_schema
from outbox_kit.pipeline.schema_references import NamedSchema, inlined_schema, read_references, registered_schema

SPACE = "io.acme"


def record(name: str, *types: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any schema
    """Return a record whose fields f0, f1... have these types."""
    fields = [{"name": f"f{index}", "type": entry} for index, entry in enumerate(types)]
    return {"type": "record", "name": name, "namespace": SPACE, "fields": fields, **more}


CURRENCY = {"type": "enum", "name": "Currency", "namespace": SPACE, "symbols": ["EUR", "USD"]}
HASH = {"type": "fixed", "name": "Hash", "namespace": SPACE, "size": 2}
MONEY = record("Money", "long", "Currency")


def aggregate(folder: Path, main: dict[str, Any], *references: dict[str, Any]) -> Aggregate:
    """Write the schemas to files, and return an aggregate with their paths."""
    paths = []
    for number, schema in enumerate([main, *references]):
        path = folder / f"{number}-{schema.get('name')}.avsc"
        path.write_text(json.dumps(schema, indent=2), encoding="utf-8")
        paths.append(path)
    return Aggregate.model_validate({"schema": paths[0], "references": paths[1:]})


def round_trip(text: str, datum: Any) -> Any:  # noqa: ANN401 - any value
    """Write and read `datum` with the schema, to check that it is self-contained."""
    schema = parse_schema(json.loads(text))
    buffer = BytesIO()
    schemaless_writer(buffer, schema, datum)
    buffer.seek(0)
    return schemaless_reader(buffer, schema, None)


@pytest.mark.parametrize("count", [60, 400])
def test_refuses_deep_types_across_files(tmp_path: Path, count: int) -> None:
    """Each file has four levels, but the inlined schema has three for every file."""
    files = [record(f"R{number}", f"R{number + 1}") for number in range(count)]
    with pytest.raises(ConfigurationError, match="types are nested over 150 levels"):
        inlined_schema(aggregate(tmp_path, *files, record(f"R{count}", "int")))


def test_keeps_a_schema_without_references_unchanged(repository: Path) -> None:
    path = repository / "schemas" / "book.avsc"
    single = Aggregate.model_validate({"schema": path})
    assert read_references(single) == []
    assert inlined_schema(single) == registered_schema(single).text == read_schema(path)
    assert registered_schema(single).name == "io.outboxkit.library.Book"


@pytest.mark.parametrize("listed", list(itertools.permutations([CURRENCY, MONEY, HASH])))
def test_references_are_in_dependency_order(tmp_path: Path, listed: tuple[dict[str, Any], ...]) -> None:
    main = record("Order", "Money", {"type": "array", "items": "io.acme.Money"}, ["null", "Hash"])
    names = [entry.name for entry in read_references(aggregate(tmp_path, main, *listed))]
    assert sorted(names) == ["io.acme.Currency", "io.acme.Hash", "io.acme.Money"]
    assert names.index("io.acme.Currency") < names.index("io.acme.Money")


def test_reference_has_text_path_and_dependencies(tmp_path: Path) -> None:
    actual = aggregate(tmp_path, record("Order", "Money"), MONEY, CURRENCY)
    text = json.dumps(MONEY, separators=(",", ":"))
    currency, money = read_references(actual)
    assert money == NamedSchema("io.acme.Money", text, tmp_path / "1-Money.avsc", ("io.acme.Currency",))
    assert currency.uses == ()
    assert registered_schema(actual).uses == ("io.acme.Money",)
    assert json.loads(registered_schema(actual).text)["fields"][0]["type"] == "Money", "types are used by name"


def test_omits_unused_references(tmp_path: Path) -> None:
    actual = read_references(aggregate(tmp_path, record("Order", "Currency"), MONEY, CURRENCY, HASH))
    assert [entry.name for entry in actual] == ["io.acme.Currency"]


# types of the fields of Order, references, values. Each type must be defined once, where it is first used.
INLINED: list[tuple[list[Any], list[dict[str, Any]], list[Any]]] = [
    (["Money"], [MONEY, CURRENCY], [{"f0": 1, "f1": "EUR"}]),
    (["Currency", "Money"], [MONEY, CURRENCY], ["USD", {"f0": 1, "f1": "EUR"}]),
    (["Money", "Currency"], [MONEY, CURRENCY], [{"f0": 1, "f1": "EUR"}, "USD"]),
    (["Money", "io.acme.Money"], [MONEY, CURRENCY], [{"f0": 1, "f1": "EUR"}] * 2),
    ([["null", "Money"]], [CURRENCY, MONEY], [{"f0": 1, "f1": "EUR"}]),
    ([{"type": "array", "items": "Hash"}, {"type": "map", "values": "Hash"}], [HASH], [[b"ab"], {"x": b"cd"}]),
    ([{"type": "array", "items": ["null", "Hash"]}], [HASH], [[None, b"ab"]]),
    ([record("Line", "Money")], [MONEY, CURRENCY], [{"f0": {"f0": 1, "f1": "EUR"}}]),
    # a type defined inside another file, used before that file's own type
    (["Inner", "Outer"], [record("Outer", record("Inner", "int"))], [{"f0": 1}, {"f0": {"f0": 2}}]),
    # a recursive type
    (["Tree"], [record("Tree", ["null", "Tree"])], [{"f0": {"f0": None}}]),
]


@pytest.mark.parametrize(("types", "references", "values"), INLINED, ids=[str(row[0]) for row in INLINED])
def test_inlines_every_type_at_its_first_use(
    tmp_path: Path, types: list[Any], references: list[dict[str, Any]], values: list[Any]
) -> None:
    text = inlined_schema(aggregate(tmp_path, record("Order", *types), *references))
    for reference in references:
        assert text.count(f'"name":"io.acme.{reference["name"]}"') == 1
    datum = {f"f{index}": value for index, value in enumerate(values)}
    assert round_trip(text, datum) == datum
    assert len(fingerprint(text)) == 64


def test_inlining_keeps_docs_defaults_and_logical_types(tmp_path: Path) -> None:
    timestamp = {"type": "long", "logicalType": "timestamp-micros"}
    money = record("Money", "long", doc="An amount.", aliases=["Amount"])
    main = record("Order", "Money", timestamp)
    main["fields"][0].update(default={"f0": 3}, doc="What it costs.")
    text = json.loads(inlined_schema(aggregate(tmp_path, main, money)))
    cost, time = text["fields"]
    assert (cost["doc"], cost["default"], time["type"]) == ("What it costs.", {"f0": 3}, timestamp)
    assert cost["type"]["doc"] == "An amount."
    assert "aliases" in cost["type"]


def test_does_not_resolve_defaults_named_like_a_type(tmp_path: Path) -> None:
    main = record("Order", "Currency", {"type": "map", "values": "string"})
    main["fields"][0]["default"] = "EUR"
    main["fields"][1]["default"] = {"type": "io.acme.Currency"}
    text = json.loads(inlined_schema(aggregate(tmp_path, main, CURRENCY)))
    assert [field["default"] for field in text["fields"]] == ["EUR", {"type": "io.acme.Currency"}]


def test_inlines_types_without_namespace(tmp_path: Path) -> None:
    bare = {"type": "enum", "name": "Flag", "symbols": ["A"]}
    main = {"type": "record", "name": "Order", "fields": [{"name": "f0", "type": "Flag"}]}
    assert round_trip(inlined_schema(aggregate(tmp_path, main, bare)), {"f0": "A"}) == {"f0": "A"}


INVALID: list[tuple[dict[str, Any], list[dict[str, Any]], str, str]] = [
    (
        record("Order", "Price"),
        [CURRENCY],
        "0-Order.avsc: type io.acme.Price is defined neither in this file nor in its references",
        "the listed files define: io.acme.Currency",
    ),
    (record("Order", "Price"), [], "type io.acme.Price", "the listed files define: no type"),
    (
        record("Order", "Money"),
        [MONEY],
        "1-Money.avsc: type io.acme.Currency is defined neither in this file nor in its references",
        "add the type's file to `references`",
    ),
    (
        record("Order", "A"),
        [record("A", "B"), record("B", "C"), record("C", "A")],
        "1-A.avsc: circular references: 1-A.avsc → 2-B.avsc → 3-C.avsc → 1-A.avsc",
        "in one file",
    ),
    (record("Order", "A"), [record("A", "Order")], "0-Order.avsc → 1-A.avsc → 0-Order.avsc", "in one file"),
    (record("Order", "Currency"), [CURRENCY, CURRENCY], "io.acme.Currency is also defined in ", "remove the type"),
    (record("Order", HASH, "Hash"), [HASH], "io.acme.Hash is also defined in ", "remove the type"),
    (
        record("Order", "Flag"),
        [{"type": "enum", "name": "Flag", "symbols": ["A"]}],
        "1-Flag.avsc: Flag has no namespace, but other types have one",
        "give every type a `namespace`",
    ),
    (record("Order", "Hash"), [{**HASH, "size": "two"}, {"type": "record"}], "it has no name", "add `name`"),
    (
        record("Order", "Currency"),
        [{**CURRENCY, "symbols": ["a b"]}],
        "1-Currency.avsc: not a valid Avro schema",
        "correct the schema",
    ),
    (
        record("Order", "Currency"),
        [{**CURRENCY, "type": "string"}],
        "the top level must be a record (or, in a reference, an enum or a fixed)",
        "define one of these types",
    ),
    ({**CURRENCY, "name": "Order"}, [], "0-Order.avsc: the top level must be a record", "define a record"),
]


@pytest.mark.parametrize(("main", "references", "message", "hint"), INVALID, ids=[row[2] for row in INVALID])
@pytest.mark.parametrize("function", [inlined_schema, registered_schema, read_references])
def test_reports_unresolved_references(
    tmp_path: Path,
    function: Callable[[Aggregate], object],
    main: dict[str, Any],
    references: list[dict[str, Any]],
    message: str,
    hint: str,
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        function(aggregate(tmp_path, main, *references))
    assert caught.value.message.startswith(f"schema file {tmp_path}")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_reports_a_missing_reference_file(tmp_path: Path) -> None:
    actual = aggregate(tmp_path, record("Order", "Money"), MONEY, CURRENCY)
    (tmp_path / "2-Currency.avsc").unlink()
    with pytest.raises(ConfigurationError) as caught:
        inlined_schema(actual)
    assert caught.value.message == f"schema file {tmp_path}/2-Currency.avsc: No such file or directory"
    assert "`references:`" in caught.value.hint


def test_inline_accepts_texts(tmp_path: Path) -> None:
    actual = aggregate(tmp_path, record("Order", "Money"), MONEY, CURRENCY)
    assert inline(registered_schema(actual).text, [entry.text for entry in read_references(actual)]) == inlined_schema(
        actual
    )
