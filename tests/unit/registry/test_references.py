"""Types that aggregates share: their subjects, the order of registration, and references by version."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.support import Script, ScriptedServer

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Aggregate, HttpService, Pipeline
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry.client import Reference, RegistryClient
from outbox_kit.registry.state import Subject, desired_references, desired_subjects, with_references_inlined
from outbox_kit.results.changes import Change

Serve = Callable[[Script], ScriptedServer]
MONEY = {"type": "record", "name": "Money", "namespace": "t", "fields": [{"name": "cents", "type": "long"}]}
PRICE = {"type": "record", "name": "Price", "namespace": "t", "fields": [{"name": "money", "type": "t.Money"}]}
ORDER = {"type": "record", "name": "Order", "namespace": "t", "fields": [{"name": "price", "type": "t.Price"}]}


@pytest.fixture
def shop(library: Pipeline, tmp_path: Path) -> Callable[..., Pipeline]:
    """Return a function that creates a pipeline whose aggregates share types."""
    for name, schema in (("money", MONEY), ("price", PRICE), ("order", ORDER)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    references = [tmp_path / "price.avsc", tmp_path / "money.avsc"]

    def aggregate(**more: Any) -> Aggregate:  # noqa: ANN401 - fields of the model
        return Aggregate(schema=tmp_path / "order.avsc", references=references, **more)

    def create(**levels: str) -> Pipeline:
        aggregates = {name: aggregate(compatibility=level) for name, level in levels.items()}
        return library.model_copy(update={"aggregates": aggregates})

    return create


def test_each_type_is_a_subject_after_its_dependencies(shop: Callable[..., Pipeline]) -> None:
    actual = desired_references(shop(order="FULL", offer="FULL"))
    assert [(subject.name, subject.uses, subject.compatibility) for subject in actual] == [
        ("t.Money", (), "FULL"),
        ("t.Price", ("t.Money",), "FULL"),
    ]
    assert "cents" in actual[1].text, "compared with inlined types"
    assert "cents" not in actual[1].text_with_references, "registered with types by name"


def test_aggregate_references_its_direct_dependencies(shop: Callable[..., Pipeline]) -> None:
    order, canary = desired_subjects(shop(order="FULL"))
    assert (order.name, order.uses) == ("library.order-value", ("t.Price",))
    assert "cents" in order.text
    assert (canary.text_with_references, canary.uses) == ("", ())


def test_rejects_two_levels_for_one_type(shop: Callable[..., Pipeline]) -> None:
    with pytest.raises(ConfigurationError, match=r"type t\.Money .* in aggregate offer \(NONE\) .* \(FULL\)"):
        desired_references(shop(order="FULL", offer="NONE"))


def version(subject: str, schema: object, *references: Reference, number: int = 1) -> tuple[int, object]:
    return 200, {
        "subject": subject,
        "version": number,
        "id": 40 + number,
        "schema": json.dumps(schema),
        "references": [vars(entry) for entry in references],
    }


def test_reads_a_version_with_every_type_inlined(serve: Serve) -> None:
    price, money = Reference("t.Price", "t.Price", 2), Reference("t.Money", "t.Money", 1)
    server = serve([version("o", ORDER, price), version("t.Price", PRICE, money, number=2), version("t.Money", MONEY)])
    client = RegistryClient(HttpService(url=server.url))
    actual = with_references_inlined(client, client.latest("o"))
    assert actual is not None
    assert actual.references == (price,)
    assert json.loads(actual.text)["fields"][0]["type"]["fields"][0]["type"]["fields"] == [
        {"name": "cents", "type": "long"}
    ]
    assert [request.path.split("?")[0] for request in server.seen] == [
        "/subjects/o/versions/latest",
        "/subjects/t.Price/versions/2",
        "/subjects/t.Money/versions/1",
    ]


def test_registers_a_schema_with_the_latest_versions_it_uses(serve: Serve) -> None:
    price = Reference("t.Money", "t.Money", 3)
    server = serve(
        [
            version("t.Money", MONEY, number=3),
            (200, {"id": 50}),
            version("t.Price", PRICE, price),
            version("t.Money", MONEY, number=3),
        ]
    )
    text = json.dumps({**PRICE, "fields": [{"name": "money", "type": MONEY}]})
    subject = Subject("t.Price", "t.Price", text, "FULL", json.dumps(PRICE), ("t.Money",))
    change = Change("registry", "schema", "t.Price", "create", "reason")
    registry_apply.apply(RegistryClient(HttpService(url=server.url)), [subject], [change], lambda _: None)
    assert server.seen[1].body == {
        "schema": json.dumps(PRICE),
        "schemaType": "AVRO",
        "references": [{"name": "t.Money", "subject": "t.Money", "version": 3}],
    }


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((200, {"subject": "a", "version": 2, "id": 7, "schema": '"string"'}), 2),
        ((404, {"error_code": 40403, "message": "Schema not found"}), None),
        ((404, {"error_code": 40401, "message": "Subject not found"}), None),
    ],
)
def test_lookup_returns_the_version_of_a_known_schema(
    serve: Serve, response: tuple[int, object], expected: int | None
) -> None:
    server = serve([response])
    assert RegistryClient(HttpService(url=server.url)).lookup("a", '"string"') == expected
    assert (server.seen[0].method, server.seen[0].path.split("?")[0]) == ("POST", "/subjects/a")


def test_delete_is_a_soft_deletion(serve: Serve) -> None:
    server = serve([(200, [1, 2])])
    RegistryClient(HttpService(url=server.url)).delete("a")
    assert [(request.method, request.path) for request in server.seen] == [("DELETE", "/subjects/a")]
