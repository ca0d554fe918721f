"""Subjects: what is registered, in which order, what is refused, and what verify says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.changes import Change
from outbox_kit.checking import Status
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import HttpService, Lock, Pipeline
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import checks
from outbox_kit.registry.client import RegistryClient, SchemaVersion
from outbox_kit.registry.state import (
    ActualSubject,
    Subject,
    desired_subjects,
    diff,
    is_registered,
    refuse_incompatible,
)

TEXT = json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]})
OTHER = json.dumps({"type": "record", "name": "A", "fields": [{"name": "y", "type": "int"}]})
SUBJECT = Subject("book", "library.book-value", TEXT, "BACKWARD")


def state(text: str | None = TEXT, rule: str | None = "BACKWARD", *, version: int = 3) -> dict[str, ActualSubject]:
    latest = SchemaVersion(version, 12, text) if text else None
    return {SUBJECT.name: ActualSubject(latest, rule)}


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
def test_diff_sets_the_rule_before_the_version(
    actual: dict[str, ActualSubject], expected: list[tuple[str, str, str, str]]
) -> None:
    changes = diff([SUBJECT], actual)
    assert [(change.object, change.action, change.before, change.after) for change in changes] == expected
    assert {change.system for change in changes} <= {"registry"}


def test_is_registered_goes_by_meaning_not_by_text() -> None:
    assert is_registered(SUBJECT, state(json.dumps(json.loads(TEXT), indent=1))[SUBJECT.name])
    assert not is_registered(SUBJECT, state(OTHER)[SUBJECT.name])
    assert not is_registered(SUBJECT, state(None)[SUBJECT.name])


# --- refuse_incompatible, against a server that answers the compatibility question


@pytest.mark.parametrize(
    ("actual", "asked"),
    [(state(), 0), (state(None, None), 0), (state(OTHER), 1)],
    ids=["same", "new", "changed"],
)
def test_only_a_changed_schema_is_asked_about(
    serve: Callable[[Script], ScriptedServer], actual: dict[str, ActualSubject], asked: int
) -> None:
    server = serve([(200, {"is_compatible": True})])
    refuse_incompatible(RegistryClient(HttpService(url=server.url)), [SUBJECT], actual)
    assert [request.path.partition("?")[0] for request in server.seen] == [
        "/compatibility/subjects/library.book-value/versions/latest"
    ] * asked


def test_an_incompatible_schema_is_refused(serve: Callable[[Script], ScriptedServer]) -> None:
    client = RegistryClient(HttpService(url=serve([(200, {"is_compatible": False})]).url))
    with pytest.raises(RefusedError) as caught:
        refuse_incompatible(client, [SUBJECT], state(OTHER))
    assert caught.value.message == ("schema of book is not BACKWARD with version 3 of library.book-value")
    assert "default" in caught.value.hint


def test_another_rule_chosen_on_purpose_is_not_refused_under_the_old_one(
    serve: Callable[[Script], ScriptedServer],
) -> None:
    """The refusal's own hint: `choose another compatibility on purpose`. The registry still has the old rule."""
    client = RegistryClient(HttpService(url=serve([(200, {"is_compatible": False})]).url))
    free = Subject("book", "library.book-value", TEXT, "NONE")
    refuse_incompatible(client, [free], state(OTHER, "BACKWARD"))


# --- apply


def test_apply_and_the_lock(serve: Callable[[Script], ScriptedServer]) -> None:
    versions = [
        {"subject": SUBJECT.name, "version": number, "id": 10 + number, "schema": text}
        for number, text in ((5, TEXT), (4, OTHER), (3, OTHER))
    ]
    server = serve(
        [
            (200, {"compatibility": "BACKWARD"}),
            (200, {"id": 15}),
            (200, versions[0]),
            (200, [1, 2, 3, 4, 5]),
            *((200, version) for version in versions[1:]),  # the client keeps the newest
        ]
    )
    client = RegistryClient(HttpService(url=server.url))
    said: list[str] = []
    registry_apply.apply(client, [SUBJECT], diff([SUBJECT], state(OTHER, "NONE", version=4)), said.append)
    locked = registry_apply.locked_schemas(client, [SUBJECT])
    assert said == ["update compatibility library.book-value", "update schema library.book-value"]
    assert server.seen[0] == Request("PUT", "/config/library.book-value", {"compatibility": "BACKWARD"})
    assert server.seen[1].method == "POST"
    assert server.seen[1].path.startswith("/subjects/library.book-value/versions")
    assert json.loads(server.seen[1].body["schema"]) == json.loads(TEXT)
    assert [(entry.version, entry.id) for entry in locked["book"]] == [(5, 15), (4, 14), (3, 13)]
    assert len({entry.fingerprint for entry in locked["book"]}) == 2


def test_a_schema_that_was_registered_before_does_not_become_the_newest(
    serve: Callable[[Script], ScriptedServer],
) -> None:
    """The registry hands out the old id; without a word, plan and apply would go round for ever."""
    newest = {"subject": SUBJECT.name, "version": 2, "id": 12, "schema": OTHER}
    client = RegistryClient(HttpService(url=serve([(200, {"id": 11}), (200, newest)]).url))
    change = [Change("registry", f"schema {SUBJECT.name}", "update", "payload of book")]
    with pytest.raises(RefusedError, match=r"was registered before; version 2 of library.book-value stays the newest"):
        registry_apply.apply(client, [SUBJECT], change, lambda _: None)


# --- checks


def seen(actual: dict[str, ActualSubject], lock: Lock | None) -> dict[str, str]:
    found = checks.run([SUBJECT], actual, lock)
    assert [check.id for check in found] == ["registry.schemas", "registry.ids", "registry.compatibility"]
    assert all(bool(check.remedy) is (check.status is Status.FAIL) for check in found)
    return {check.id: check.seen for check in found if check.status is Status.FAIL}


@pytest.fixture
def locked(lock: Lock) -> Lock:
    """A lock file that has id 12 for books."""
    entry = lock.schemas["book"][0].model_copy(update={"id": 12})
    return lock.model_copy(update={"schemas": {"book": [entry]}})


def test_what_is_as_deployed_passes(locked: Lock) -> None:
    assert seen(state(), locked) == {}


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (state(OTHER), {"registry.schemas": "not the file's schema: library.book-value"}),
        (state(None), {"registry.schemas": "not the file's schema: library.book-value"}),
        (state(TEXT, "NONE"), {"registry.compatibility": "library.book-value is NONE, not BACKWARD"}),
        (state(TEXT, None), {"registry.compatibility": "library.book-value is None, not BACKWARD"}),
    ],
)
def test_each_fault_fails_its_check(locked: Lock, actual: dict[str, ActualSubject], expected: dict[str, str]) -> None:
    assert seen(actual, locked) == expected


@pytest.mark.parametrize("which", ["no lock", "no schemas", "another id"])
def test_ids_that_the_connector_does_not_write(locked: Lock, lock: Lock, which: str) -> None:
    """A registry that lost its content hands out other ids: old records become unreadable."""
    cases = {"no lock": None, "no schemas": locked.model_copy(update={"schemas": {}}), "another id": lock}
    ids = {"no lock": "[]", "no schemas": "[]", "another id": "[7]"}
    expected = f"library.book-value has id 12, the lock file {ids[which]}"
    assert seen(state(), cases[which]) == {"registry.ids": expected}
