"""Checks of `outbox verify` on the schema registry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_kit.pipeline import Lock, Pipeline
from outbox_kit.registry import checks
from outbox_kit.registry.checks import RegistryState
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.registry.state import ActualSubject, desired_subjects
from outbox_kit.results.checks import Status, evaluate

BOOK = "library.book-value"


@pytest.fixture
def state(library: Pipeline, lock: Lock) -> RegistryState:
    """Return the state of a registry after apply."""
    subjects = desired_subjects(library)
    actual = {}
    for subject in subjects:
        latest = lock.schemas[subject.aggregate_type][0]
        actual[subject.name] = ActualSubject(SchemaVersion(latest.version, latest.id, subject.text), "BACKWARD")
    return RegistryState(subjects, actual, lock)


def not_passed(state: RegistryState) -> dict[str, str]:
    return {check.id: check.seen for check in evaluate(checks.RULES, state) if check.status is not Status.PASS}


def test_passes_for_a_deployed_registry(state: RegistryState) -> None:
    assert not_passed(state) == {}
    assert [check.id for check in evaluate(checks.RULES, state)] == [item.id for item in checks.RULES]


def test_fails_for_another_registry_than_that_of_the_last_apply(state: RegistryState) -> None:
    lock = state.lock.model_copy(update={"registry_url": "http://r:1"})
    assert not_passed(replace(state, lock=lock, url="http://r:1")) == {}
    assert not_passed(replace(state, lock=lock, url="http://other:1")) == {"registry.reachable": "http://other:1"}


@pytest.mark.parametrize(("recorded", "version"), [(1, 9), (1, 1), (3, 1)])
def test_remedy_deletes_a_version_that_was_registered_by_others(
    state: RegistryState, recorded: int, version: int
) -> None:
    """`apply` refuses the file's schema: it equals an earlier version, or is incompatible with the first version."""
    schemas = {
        name: [entry.model_copy(update={"version": recorded}) for entry in entries]
        for name, entries in state.lock.schemas.items()
    }
    state = replace(state, lock=state.lock.model_copy(update={"schemas": schemas}))
    foreign = SchemaVersion(version, 77, '{"type":"record","name":"Book","fields":[]}')
    book = ActualSubject(foreign, "BACKWARD")
    changed = replace(state, actual={**state.actual, BOOK: book}, url="http://r:1/v7")
    remedies = {check.id: check.remedy for check in evaluate(checks.RULES, changed) if check.status is Status.FAIL}
    assert f"`curl -X DELETE http://r:1/v7/subjects/{BOOK}/versions/{version}`" in remedies["registry.schemas"]
    assert remedies["registry.ids"] == "see registry.schemas"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"latest": SchemaVersion(1, 7, '{"type":"record","name":"Book","fields":[]}')},
            {"registry.schemas": f"not the schema in the file: {BOOK}"},
        ),
        ({"latest": None}, {"registry.schemas": f"not the schema in the file: {BOOK}"}),
        ({"compatibility": "NONE"}, {"registry.compatibility": f"{BOOK} is NONE, not BACKWARD"}),
        ({"compatibility": None}, {"registry.compatibility": f"{BOOK} is None, not BACKWARD"}),
    ],
)
def test_each_fault_fails_exactly_its_check(
    state: RegistryState, changes: dict[str, object], expected: dict[str, str]
) -> None:
    actual = {**state.actual, BOOK: replace(state.actual[BOOK], **changes)}  # type: ignore[arg-type]
    assert not_passed(replace(state, actual=actual)) == expected


def test_reports_an_id_missing_in_the_lock_file(state: RegistryState) -> None:
    """A registry that lost its content assigns another id to the same schema."""
    latest = state.actual[BOOK].latest
    assert latest is not None
    actual = {**state.actual, BOOK: replace(state.actual[BOOK], latest=replace(latest, id=70))}
    assert not_passed(replace(state, actual=actual)) == {"registry.ids": f"{BOOK} has id 70, but the lock file has [7]"}
    assert "registry.ids" in not_passed(replace(state, lock=state.lock.model_copy(update={"schemas": {}})))
