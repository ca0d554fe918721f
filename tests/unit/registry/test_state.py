"""Subjects: changes and their order, dangers, and rejected schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.support import Request, Script, ScriptedServer

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import HttpService, Pipeline
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry.client import RegistryClient, SchemaVersion
from outbox_kit.registry.state import (
    ActualSubject,
    Subject,
    desired_subjects,
    diff,
    incompatible_fields,
    is_registered,
    refuse_incompatible,
)
from outbox_kit.results.changes import Change

TEXT = json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]})
OTHER = json.dumps({"type": "record", "name": "A", "fields": [{"name": "y", "type": "int", "default": 0}]})
SUBJECT = Subject("book", "library.book-value", TEXT, "BACKWARD")


def state(text: str | None = TEXT, level: str | None = "BACKWARD", *, version: int = 3) -> dict[str, ActualSubject]:
    latest = SchemaVersion(version, 12, text) if text else None
    return {SUBJECT.name: ActualSubject(latest, level)}


def test_one_subject_per_aggregate_and_the_canary(library: Pipeline) -> None:
    subjects = desired_subjects(library)
    assert [(subject.aggregate_type, subject.name, subject.compatibility) for subject in subjects] == [
        ("author", "library.author-value", "BACKWARD"),
        ("book", "library.book-value", "BACKWARD"),
        ("outbox-canary", "library.outbox-canary-value", "BACKWARD"),
    ]
    assert all(json.loads(subject.text)["type"] == "record" for subject in subjects)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (state(), []),
        (state(json.dumps(json.loads(TEXT), indent=4)), []),
        (
            state(None, None),
            [
                ("compatibility library.book-value", "create", "", "BACKWARD"),
                ("schema library.book-value", "create", "", "version 1"),
            ],
        ),
        (state(TEXT, "NONE"), [("compatibility library.book-value", "update", "NONE", "BACKWARD")]),
        (state(OTHER), [("schema library.book-value", "update", "version 3", "version 4")]),
        (
            state(OTHER, "FULL"),
            [
                ("compatibility library.book-value", "update", "FULL", "BACKWARD"),
                ("schema library.book-value", "update", "version 3", "version 4"),
            ],
        ),
    ],
)
def test_diff_sets_the_level_before_the_version(
    actual: dict[str, ActualSubject], expected: list[tuple[str, str, str, str]]
) -> None:
    changes = diff([SUBJECT], actual)
    assert [(change.object, change.action, change.before, change.after) for change in changes] == expected
    assert {change.system for change in changes} <= {"registry"}


def test_is_registered_compares_meaning_not_text() -> None:
    assert is_registered(SUBJECT, state(json.dumps(json.loads(TEXT), indent=1))[SUBJECT.name])
    assert not is_registered(SUBJECT, state(OTHER)[SUBJECT.name])
    assert not is_registered(SUBJECT, state(None)[SUBJECT.name])


def test_diff_lists_added_and_removed_fields() -> None:
    (change,) = diff([replace(SUBJECT, text=OTHER)], state())
    assert change.reason == "payload of book: adds y; removes x"
    assert change.danger == ""


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
CENTS, TENTHS = ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (2, 1))


def record_of(kind: object, **more: object) -> str:
    return json.dumps({"type": "record", "name": "A", "fields": [{"name": "f", "type": kind, **more}]})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            record_of(MILLIS),
            record_of(MICROS),
            "field f is timestamp-millis in existing records and would be read as t",
        ),
        (
            record_of(CENTS),
            record_of(TENTHS),
            "field f is decimal of scale 2 in existing records and would be read as decimal",
        ),
        (record_of({"type": "int", "logicalType": "date"}), record_of("int"), "field f is date"),
        (record_of("int"), record_of("string"), "cannot be read by the new version: field f (from int to string)"),
        (OTHER, record_of("int"), "field f (from nothing to int without a default)"),
        (
            record_of({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            record_of({"type": "enum", "name": "E", "symbols": ["A"]}),
            "field f (from E to a different E)",
        ),
    ],
)
def test_reports_changed_meaning_as_dangerous(old: str, new: str, message: str) -> None:
    (change,) = diff([replace(SUBJECT, text=new)], state(old))
    assert message in change.danger


# --- refuse_incompatible


NO_SCHEMA: tuple[int, object] = (404, {"error_code": 40403, "message": "Schema not found"})


@pytest.mark.parametrize(
    ("actual", "paths"),
    [(state(), []), (state(None, None), []), (state(OTHER), ["/subjects", "/compatibility"])],
    ids=["same", "new", "changed"],
)
def test_checks_only_changed_schemas(
    serve: Callable[[Script], ScriptedServer], actual: dict[str, ActualSubject], paths: list[str]
) -> None:
    server = serve([NO_SCHEMA, (200, {"is_compatible": True})])
    refuse_incompatible(RegistryClient(HttpService(url=server.url)), [SUBJECT], actual)
    assert [f"/{request.path.split('/')[1]}" for request in server.seen] == paths


def test_rejects_an_incompatible_schema_with_its_fields(serve: Callable[[Script], ScriptedServer]) -> None:
    client = RegistryClient(HttpService(url=serve([NO_SCHEMA, (200, {"is_compatible": False})]).url))
    with pytest.raises(RefusedError) as caught:
        refuse_incompatible(client, [SUBJECT], state(OTHER))
    assert caught.value.message == (
        "schema of book is not BACKWARD compatible with version 3 of library.book-value: "
        "x (from nothing to int without a default)"
    )
    assert "default" in caught.value.hint


def test_checks_every_version_for_a_transitive_level(serve: Callable[[Script], ScriptedServer]) -> None:
    server = serve([NO_SCHEMA, (200, {"is_compatible": True})])
    subject = replace(SUBJECT, compatibility="FULL_TRANSITIVE")
    refuse_incompatible(RegistryClient(HttpService(url=server.url)), [subject], state(OTHER, "FULL_TRANSITIVE"))
    assert server.seen[1].path.partition("?")[0] == "/compatibility/subjects/library.book-value/versions"


@pytest.mark.parametrize("level", ["NONE", "FORWARD"])
def test_does_not_test_with_the_old_level_after_a_change(serve: Callable[[Script], ScriptedServer], level: str) -> None:
    """The registry still has the old level."""
    client = RegistryClient(HttpService(url=serve([NO_SCHEMA]).url))
    subject = replace(SUBJECT, compatibility=level)
    actual = state(OTHER, "BACKWARD")
    refuse_incompatible(client, [subject], actual)
    assert "cannot be read" in diff([subject], actual)[-1].danger


def test_tests_a_stricter_level_before_setting_it(serve: Callable[[Script], ScriptedServer]) -> None:
    client = RegistryClient(HttpService(url=serve([NO_SCHEMA]).url))
    with pytest.raises(RefusedError, match=r"BACKWARD .* version 3 of library\.book-value: x "):
        refuse_incompatible(client, [SUBJECT], state(OTHER, "NONE"))


@pytest.mark.parametrize(
    ("level", "old", "new", "violated"),
    [
        ("BACKWARD", record_of("int"), record_of("long"), False),
        ("FORWARD", record_of("int"), record_of("long"), True),
        ("FULL_TRANSITIVE", record_of("int"), record_of("long"), True),
        ("NONE", record_of("int"), record_of("string"), False),
        ("BACKWARD", record_of("int"), record_of(["null", "int"]), False),
        ("BACKWARD", record_of(["null", "int"]), record_of("int"), True),
    ],
)
def test_incompatible_fields_depend_on_the_direction_of_the_level(
    level: str, old: str, new: str, violated: bool
) -> None:
    assert bool(incompatible_fields(level, old, new)) is violated


def test_reports_a_return_to_an_earlier_version_before_registering(serve: Callable[[Script], ScriptedServer]) -> None:
    actual = {"subject": SUBJECT.name, "version": 1, "id": 9, "schema": TEXT}
    client = RegistryClient(HttpService(url=serve([(200, actual)]).url))
    with pytest.raises(RefusedError, match=r"library\.book-value; version 3 remains"):
        refuse_incompatible(client, [SUBJECT], state(OTHER))


# --- apply


def test_apply_updates_the_lock(serve: Callable[[Script], ScriptedServer]) -> None:
    versions = [
        {"subject": SUBJECT.name, "version": number, "id": 10 + number, "schema": text}
        for number, text in ((5, TEXT), (4, OTHER), (3, OTHER))
    ]
    server = serve(
        [
            (200, {"compatibility": "BACKWARD"}),
            (200, {"is_compatible": True}),
            (200, {"id": 15}),
            (200, versions[0]),
            (200, [1, 2, 3, 4, 5]),
            *((200, version) for version in versions),
        ]
    )
    client = RegistryClient(HttpService(url=server.url))
    messages: list[str] = []
    registry_apply.apply(client, [SUBJECT], diff([SUBJECT], state(OTHER, "NONE", version=4)), messages.append)
    locked = registry_apply.recorded_schemas(client, [SUBJECT])
    assert messages == ["update compatibility library.book-value", "update schema library.book-value"]
    assert server.seen[0] == Request("PUT", "/config/library.book-value", {"compatibility": "BACKWARD"})
    assert server.seen[1].path.startswith("/compatibility/subjects/library.book-value/versions/latest")
    assert server.seen[2].method == "POST"
    assert server.seen[2].path.startswith("/subjects/library.book-value/versions")
    assert json.loads(server.seen[2].body["schema"]) == json.loads(TEXT)
    assert [(entry.version, entry.id) for entry in locked["book"]] == [(5, 15), (4, 14), (3, 13)]
    assert len({entry.fingerprint for entry in locked["book"]}) == 2


def test_restores_the_old_level_when_registration_fails(serve: Callable[[Script], ScriptedServer]) -> None:
    latest = {"subject": SUBJECT.name, "version": 4, "id": 14, "schema": OTHER}
    level = {"compatibility": "NONE"}
    server = serve([(200, level), (200, {"is_compatible": False}), (200, level), (200, latest)])
    client = RegistryClient(HttpService(url=server.url))
    with pytest.raises(RefusedError, match=r"BACKWARD compatible: x \(.*; .* set back to NONE"):
        registry_apply.apply(client, [SUBJECT], diff([SUBJECT], state(OTHER, "NONE", version=4)), lambda _: None)
    assert [(request.method, request.body) for request in server.seen if request.method == "PUT"] == [
        ("PUT", {"compatibility": "BACKWARD"}),
        ("PUT", {"compatibility": "NONE"}),
    ]


def test_registering_an_earlier_schema_does_not_make_it_latest(
    serve: Callable[[Script], ScriptedServer],
) -> None:
    """The registry returns the old id. Without an error, every later plan would contain the same change."""
    latest = {"subject": SUBJECT.name, "version": 2, "id": 12, "schema": OTHER}
    client = RegistryClient(HttpService(url=serve([(200, {"id": 11}), (200, latest)]).url))
    change = [Change("registry", "schema", SUBJECT.name, "update", "payload of book")]
    with pytest.raises(RefusedError, match=r"library.book-value; version 2 remains"):
        registry_apply.apply(client, [SUBJECT], change, lambda _: None)
