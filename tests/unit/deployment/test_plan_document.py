"""JSON form of a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.deployment import Plan, RollOut, read_plan, to_document
from outbox_kit.results.changes import Change

CHANGES = (
    Change("postgres", "grant to", "reader", "create", "the connector reads the table"),
    Change("registry", "schema", "library.book-value", "update", "payload of book", "version 1", "version 2"),
    Change("connect", "start", "library-outbox", "create", "it has never run", danger="none", loss="all"),
)


def test_plan_json_round_trip(tmp_path: Path) -> None:
    plan = Plan(
        "library",
        "fixed",
        CHANGES,
        (RollOut("book", ("isbn",), (), ("outbox apply",)),),
        recover=False,
        only=("registry", "connect"),
        files="f" * 64,
        waits_for=("slot s",),
        cluster_id="k1",
        registry="http://a",
        database="1/library",
    )
    document = to_document(plan)
    assert document["format"] == 1
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert read_plan(path) == plan
    assert [change["object"] for change in document["changes"]] == [
        "grant to reader",
        "schema library.book-value",
        "start library-outbox",
    ]
    assert document["changes"][1] == {
        "system": "registry",
        "object": "schema library.book-value",
        "action": "update",
        "why": "payload of book",
        "before": "version 1",
        "after": "version 2",
        "danger": "",
        "loss": "",
    }


@pytest.mark.parametrize(
    ("key", "value", "location"),
    [("format", 2, "format"), ("changes", [{"object": "thing x"}], "changes.0"), ("files", None, "files")],
)
def test_rejects_a_file_that_is_not_a_plan_by_key(tmp_path: Path, key: str, value: object, location: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**to_document(Plan("library", "fixed", CHANGES)), key: value}))
    with pytest.raises(ConfigurationError, match=rf"plan file .*: {location}"):
        read_plan(path)
