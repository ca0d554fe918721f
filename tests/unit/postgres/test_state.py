"""Desired against actual database: the order of changes, and every case that is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.postgres.samples import DEPLOYED, EMPTY, LOCKED, PUBLICATION, SLOT

from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Columns, Environment, LockedSource, Pipeline
from outbox_kit.postgres.state import COLUMN_TYPES, ActualDatabase, column_problems, diff, refuse_unsafe


def objects(pipeline: Pipeline, environment: Environment, actual: ActualDatabase) -> list[str]:
    return [change.object for change in diff(pipeline, environment, actual)]


def test_an_empty_database_gets_everything_in_the_safe_order(library: Pipeline, environment: Environment) -> None:
    changes = diff(library, environment, EMPTY)
    assert [change.object for change in changes] == [
        "table public.outbox_event",
        "grant to reader",
        "publication library_outbox",
        "slot library_outbox",
    ]
    assert {(change.system, change.action) for change in changes} == {("postgres", "create")}
    assert all(change.why for change in changes)


def test_a_deployed_database_gets_nothing(library: Pipeline, environment: Environment) -> None:
    assert objects(library, environment, DEPLOYED) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"columns": {}}, ["table public.outbox_event"]),
        ({"role": None}, ["grant to reader"]),
        ({"role": {"can_login": True, "can_replicate": True, "can_read": False}}, ["grant to reader"]),
        ({"publication": None, "slot": None}, ["publication library_outbox", "slot library_outbox"]),
        ({"slot": None}, ["slot library_outbox"]),
        ({"slot": {**SLOT, "active": False}}, []),
    ],
)
def test_what_is_missing_is_made(
    library: Pipeline, environment: Environment, changes: dict[str, Any], expected: list[str]
) -> None:
    assert objects(library, environment, replace(DEPLOYED, **changes)) == expected


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        (COLUMN_TYPES, []),
        ({**COLUMN_TYPES, "seq": "bigint", "tenant": "text"}, []),
        ({**COLUMN_TYPES, "payload": "json"}, ["payload is json, not jsonb"]),
        ({**COLUMN_TYPES, "id": "bigint"}, ["id is bigint, not uuid"]),
        (
            {**COLUMN_TYPES, "created_at": "timestamp without time zone"},
            ["created_at is timestamp without time zone, not timestamp with time zone"],
        ),
        ({key: value for key, value in COLUMN_TYPES.items() if key != "headers"}, ["headers is missing"]),
        ({}, [f"{name} is missing" for name in COLUMN_TYPES]),
    ],
)
def test_column_problems(library: Pipeline, columns: dict[str, str], problems: list[str]) -> None:
    assert column_problems(library.source, columns) == problems


def test_columns_go_by_the_names_of_the_pipeline_file(library: Pipeline) -> None:
    source = library.source.model_copy(update={"columns": Columns(aggregate_id="entity_id")})
    assert column_problems(source, dict(COLUMN_TYPES)) == ["entity_id is missing"]
    assert column_problems(source, {**COLUMN_TYPES, "entity_id": "uuid"}) == ["entity_id is uuid, not text"]


def test_every_column_of_the_contract_has_a_type() -> None:
    assert COLUMN_TYPES.keys() == Columns.model_fields.keys()


@pytest.mark.parametrize("actual", [DEPLOYED, EMPTY])
def test_safe_states_pass_before_the_first_apply(library: Pipeline, actual: ActualDatabase) -> None:
    refuse_unsafe(library, actual, None)


def test_a_deployed_state_passes_under_its_lock(library: Pipeline) -> None:
    refuse_unsafe(library, DEPLOYED, LOCKED)


def test_another_slot_name_than_locked_passes(library: Pipeline) -> None:
    """A pipeline that moves to a new slot: the lock's slot is not the one in question."""
    refuse_unsafe(library, replace(DEPLOYED, slot=None), LOCKED.model_copy(update={"slot": "old_one"}))


REFUSED: list[tuple[dict[str, Any], LockedSource | None, str, str]] = [
    ({"wal_level": "replica"}, None, "wal_level is 'replica', not 'logical'", "set wal_level = logical"),
    (
        {"columns": {**COLUMN_TYPES, "payload": "json"}},
        None,
        "table public.outbox_event breaks the contract: payload is json, not jsonb",
        "source.columns",
    ),
    (
        {"publication": None},
        None,
        "slot 'library_outbox' exists but publication 'library_outbox' does not",
        "select pg_drop_replication_slot('library_outbox')",
    ),
    ({"publication": None}, LOCKED, "rows in between would be lost", "republish"),
    (
        {"system_identifier": "7302"},
        LOCKED,
        "the database is another one (system identifier 7302, the lock file has 7301)",
        "raise source_epoch",
    ),
    ({"slot": None}, LOCKED, "slot 'library_outbox' is gone; it was made at 16/B374D848", "republish"),
    ({"slot": None, "publication": None}, LOCKED, "slot 'library_outbox' is gone", "republish"),
]


@pytest.mark.parametrize(
    ("changes", "locked", "message", "hint"), REFUSED, ids=[message[:40] for _, _, message, _ in REFUSED]
)
def test_what_could_lose_rows_is_refused(
    library: Pipeline, changes: dict[str, Any], locked: LockedSource | None, message: str, hint: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_unsafe(library, replace(DEPLOYED, **changes), locked)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"publication": {**PUBLICATION, "tables": ["public.other"]}},
        {"publication": {**PUBLICATION, "pubinsert": False}},
        {"slot": {**SLOT, "wal_status": "lost"}},
        {"slot": {**SLOT, "plugin": "wal2json"}},
        {"slot": {**SLOT, "database": "other"}},
    ],
    ids=[
        "publication of another table",
        "publication without inserts",
        "slot lost",
        "other plugin",
        "other database",
    ],
)
def test_objects_that_exist_but_cannot_deliver_are_refused(library: Pipeline, changes: dict[str, Any]) -> None:
    """Otherwise plan says "no changes", the connector runs, heartbeats move the slot, and rows never arrive."""
    with pytest.raises(RefusedError):
        refuse_unsafe(library, replace(DEPLOYED, **changes), LOCKED)
