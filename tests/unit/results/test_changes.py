"""Names of a change in --allow, in JSON and in messages."""

from __future__ import annotations

import pytest

from outbox_kit.results.changes import KINDS, Change, parse_object


@pytest.mark.parametrize(
    ("change", "name", "title"),
    [
        (Change("kafka", "topic", "a.b", "create", ""), "topic a.b", "create topic a.b"),
        (Change("postgres", "grant to", "r", "create", ""), "grant to r", "create grant to r"),
        (Change("connect", "connector", "c", "delete", ""), "connector c", "delete connector c"),
        (Change("connect", "start", "c", "create", ""), "start c", "start connector c"),
        (Change("connect", "state", "c", "update", ""), "state c", "change state of connector c"),
        (Change("connect", "offsets", "c", "update", ""), "offsets c", "reset offsets of connector c"),
    ],
)
def test_change_names(change: Change, name: str, title: str) -> None:
    assert (change.object, change.title) == (name, title)
    assert parse_object(name) == (change.kind, change.name)
    assert change.to_dict()["object"] == name


@pytest.mark.parametrize("kind", KINDS)
def test_parses_names_with_spaces(kind: str) -> None:
    assert parse_object(f"{kind} a b") == (kind, "a b")


def test_rejects_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        parse_object("thing x")
