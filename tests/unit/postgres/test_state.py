"""Desired and actual state of the database: order of changes, and every rejected state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.postgres.samples import DEPLOYED, EMPTY, LOCKED, PUBLICATION, SLOT, by_tenant

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import Columns, Environment, LockedSource, Pipeline
from outbox_kit.postgres.state import COLUMN_TYPES, ActualDatabase, column_problems, diff, refuse_unsafe
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT, NEW_DATABASE_HINT, RECOVER_HINT


def objects(pipeline: Pipeline, environment: Environment, actual: ActualDatabase) -> list[str]:
    return [change.object for change in diff(pipeline, environment, actual)]


def test_creates_everything_in_the_safe_order(library: Pipeline, environment: Environment) -> None:
    changes = diff(library, environment, EMPTY)
    assert [change.object for change in changes] == [
        "table public.outbox_event",
        "grant to reader",
        "publication library_outbox",
        "slot library_outbox",
    ]
    assert {(change.system, change.action) for change in changes} == {("postgres", "create")}
    assert all(change.reason for change in changes)


def test_changes_nothing_in_a_deployed_database(library: Pipeline, environment: Environment) -> None:
    assert objects(library, environment, DEPLOYED) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"columns": {}}, ["table public.outbox_event", "publication library_outbox"]),
        ({"publication": {**PUBLICATION, "puballtables": True}}, ["publication library_outbox"]),
        ({"role": None}, ["grant to reader"]),
        ({"role": {"can_login": True, "can_replicate": True, "can_read": False}}, ["grant to reader"]),
        ({"publication": None, "slot": None}, ["publication library_outbox", "slot library_outbox"]),
        ({"slot": None}, ["slot library_outbox"]),
        ({"slot": replace(SLOT, active=False)}, []),
    ],
)
def test_creates_missing_objects(
    library: Pipeline, environment: Environment, changes: dict[str, Any], expected: list[str]
) -> None:
    assert objects(library, environment, replace(DEPLOYED, **changes)) == expected


def test_records_a_recreated_table(library: Pipeline, environment: Environment) -> None:
    (change,) = diff(library, environment, replace(DEPLOYED, table_oid=16401), LOCKED)
    assert (change.object, change.action) == ("table public.outbox_event", "update")
    assert (change.before, change.after) == ("oid 16400 (lock file)", "oid 16401")
    assert "dropped and created again" in change.reason


@pytest.mark.parametrize(
    ("actual", "locked"),
    [
        (DEPLOYED, LOCKED),
        (replace(DEPLOYED, table_oid=None), LOCKED),
        (DEPLOYED, LOCKED.model_copy(update={"table_oid": None})),
        (DEPLOYED, None),
    ],
    ids=["same", "messages", "earlier release", "first apply"],
)
def test_the_recorded_table_needs_no_change(
    library: Pipeline, environment: Environment, actual: ActualDatabase, locked: LockedSource | None
) -> None:
    assert diff(library, environment, actual, locked) == []


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
    assert column_problems(library, columns) == problems


def test_uses_column_names_of_the_pipeline_file(library: Pipeline) -> None:
    source = library.source.model_copy(update={"columns": Columns(aggregate_id="entity_id")})
    renamed = library.model_copy(update={"source": source})
    assert column_problems(renamed, dict(COLUMN_TYPES)) == ["entity_id is missing"]
    assert column_problems(renamed, {**COLUMN_TYPES, "entity_id": "uuid"}) == ["entity_id is uuid, not text"]
    assert column_problems(renamed, {**COLUMN_TYPES, "entity_id": "character varying(255)"}) == []


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ({"tenant": "text"}, []),
        ({"tenant": "bigint"}, []),
        ({}, ["tenant, the partition_field of book, is missing"]),
        ({"id": "bigint"}, ["id is bigint, not uuid", "tenant, the partition_field of book, is missing"]),
    ],
)
def test_partition_field_is_a_column(library: Pipeline, columns: dict[str, str], problems: list[str]) -> None:
    """Its type does not matter, because its text is hashed."""
    assert column_problems(by_tenant(library), {**COLUMN_TYPES, **columns}) == problems


def test_every_column_of_the_contract_has_a_type() -> None:
    assert COLUMN_TYPES.keys() == Columns.model_fields.keys()


@pytest.mark.parametrize("actual", [DEPLOYED, EMPTY])
def test_accepts_safe_states_before_the_first_apply(library: Pipeline, actual: ActualDatabase) -> None:
    refuse_unsafe(library, actual, None)


def test_accepts_a_deployed_state_with_its_lock_file(library: Pipeline) -> None:
    refuse_unsafe(library, DEPLOYED, LOCKED)


@pytest.mark.parametrize(
    "changes",
    [
        {"system_identifier": "7302"},
        {"timeline": 2},
        {"slot": None},
        {"slot": None, "publication": None},
        {"publication": {**PUBLICATION, "oid": 17000}},
    ],
    ids=["another database", "promoted", "no slot", "no slot, no publication", "publication recreated"],
)
def test_accepts_another_source_without_a_lock_file(library: Pipeline, changes: dict[str, Any]) -> None:
    """The lock file is missing before the first apply, and is ignored with --recover."""
    refuse_unsafe(library, replace(DEPLOYED, **changes), None)


def test_accepts_an_advanced_slot_with_its_lock_file(library: Pipeline) -> None:
    refuse_unsafe(library, replace(DEPLOYED, slot=replace(SLOT, confirmed_flush=0x1700000000)), LOCKED)


UNSAFE: list[tuple[dict[str, Any], LockedSource | None, str, str]] = [
    ({"wal_level": "replica"}, None, "wal_level is 'replica', not 'logical'", "set wal_level = logical"),
    (
        {"columns": {**COLUMN_TYPES, "payload": "json"}},
        None,
        "table public.outbox_event does not follow the contract: payload is json, not jsonb",
        "source.columns",
    ),
    (
        {"publication": None},
        None,
        "slot 'library_outbox' exists but publication 'library_outbox' does not",
        "run `outbox stop` and `select pg_drop_replication_slot('library_outbox')`",
    ),
    ({"publication": None}, LOCKED, "publication 'library_outbox' does not", RECOVER_HINT),
    (
        {"system_identifier": "7302"},
        LOCKED,
        "the system identifier of the database is 7302, but the lock file has 7301",
        f"check source.host; {NEW_DATABASE_HINT}",
    ),
    (
        {"timeline": 2},
        LOCKED,
        "the timeline of the server is 2, but the lock file has 1",
        RECOVER_HINT,
    ),
    (
        {"timeline": 1},
        LOCKED.model_copy(update={"timeline": 3}),
        "the timeline of the server is 1, but the lock file has 3",
        RECOVER_HINT,
    ),
    ({"slot": None}, LOCKED, "slot 'library_outbox', created at 16/B374D848, does not exist", RECOVER_HINT),
    ({"slot": None, "publication": None}, LOCKED, "slot 'library_outbox', created at", RECOVER_HINT),
    (
        {},
        LOCKED.model_copy(update={"slot": "old_slot"}),
        "source.slot is 'library_outbox', but the lock file has 'old_slot'",
        APPLY_RECOVER_HINT,
    ),
    (
        {"slot": None},
        LOCKED.model_copy(update={"slot": "old_slot"}),
        "source.slot is 'library_outbox'",
        "source.slot",
    ),
    (
        {"publication": {**PUBLICATION, "oid": 17000}},
        LOCKED,
        "publication 'library_outbox' was recreated after the slot",
        RECOVER_HINT,
    ),
    *(({"is_standby": True}, locked, "the database is a standby", "source.host") for locked in (None, LOCKED)),
    *(
        (
            {"publication": {**PUBLICATION, "filtered": True}},
            locked,
            "publication 'library_outbox' has a row filter",
            'run `alter publication library_outbox set table "public"."outbox_event"`',
        )
        for locked in (None, LOCKED)
    ),
    *(
        (
            {"slot": replace(SLOT, wal_status="lost")},
            locked,
            "slot 'library_outbox' is lost",
            hint,
        )
        for locked, hint in (
            (None, "run `outbox stop` and `select pg_drop_replication_slot('library_outbox')`"),
            (LOCKED, RECOVER_HINT),
        )
    ),
]


@pytest.mark.parametrize(("changes", "locked", "message", "hint"), UNSAFE, ids=[message for _, _, message, _ in UNSAFE])
def test_rejects_states_that_could_lose_rows(
    library: Pipeline, changes: dict[str, Any], locked: LockedSource | None, message: str, hint: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_unsafe(library, replace(DEPLOYED, **changes), locked)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_dropped_table_is_created_and_published(library: Pipeline, environment: Environment) -> None:
    """PostgreSQL has removed the table from the publication, so `apply` cannot lose rows."""
    dropped = replace(DEPLOYED, columns={}, table_oid=None, publication={**PUBLICATION, "tables": []})
    refuse_unsafe(library, dropped, LOCKED)
    changes = diff(library, environment, dropped, LOCKED)
    assert [(change.kind, change.action) for change in changes] == [("table", "create"), ("publication", "update")]


@pytest.mark.parametrize("locked", [None, LOCKED], ids=["first apply", "locked"])
def test_a_publication_of_other_tables_is_not_replaced(library: Pipeline, locked: LockedSource | None) -> None:
    """The pipeline file can name a new table and the publication of another pipeline."""
    other = replace(DEPLOYED, columns={}, table_oid=None, publication={**PUBLICATION, "tables": ["public.other"]})
    with pytest.raises(RefusedError, match=r"contains public\.other, and table public\.outbox_event does not exist"):
        refuse_unsafe(library, other, locked)


def test_rejects_a_missing_partition_field(library: Pipeline) -> None:
    with pytest.raises(RefusedError, match="tenant, the partition_field of book"):
        refuse_unsafe(by_tenant(library), DEPLOYED, LOCKED)
    unpublished = {**PUBLICATION, "tables": []}
    refuse_unsafe(by_tenant(library), replace(DEPLOYED, columns={}, publication=unpublished), None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A standby has the identifier of its primary, but not the positions of the primary's slots.
        ({"is_standby": True, "system_identifier": "7302", "slot": None}, "the database is a standby"),
        # A different database is the cause of a missing slot or publication.
        (
            {"system_identifier": "7302", "slot": None, "publication": None},
            "the system identifier of the database is 7302",
        ),
        ({"system_identifier": "7302", "timeline": 2}, "the system identifier of the database is 7302"),
        ({"timeline": 2, "slot": None}, "the timeline of the server is 2"),
        ({"timeline": 2, "publication": {**PUBLICATION, "pubinsert": False}}, "the timeline of the server is 2"),
        ({"slot": None, "publication": {**PUBLICATION, "filtered": True}}, "slot 'library_outbox', created at"),
        (
            {"system_identifier": "7302", "slot": replace(SLOT, wal_status="lost")},
            "the system identifier of the database is 7302",
        ),
        ({"system_identifier": "7302", "publication": None}, "the system identifier of the database is 7302"),
    ],
)
def test_reports_the_cause_before_its_consequences(library: Pipeline, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_unsafe(library, replace(DEPLOYED, **changes), LOCKED)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("locked", [None, LOCKED], ids=["first apply", "locked"])
@pytest.mark.parametrize(
    "changes",
    [
        {"publication": {**PUBLICATION, "tables": ["public.other"]}},
        {"publication": {**PUBLICATION, "filtered": True}},
        {"publication": {**PUBLICATION, "pubinsert": False}},
        {"slot": replace(SLOT, wal_status="lost")},
        {"slot": replace(SLOT, plugin="wal2json")},
        {"slot": replace(SLOT, database="other")},
    ],
    ids=[
        "publication of another table",
        "publication with a row filter",
        "publication without inserts",
        "slot lost",
        "other plugin",
        "other database",
    ],
)
def test_rejects_existing_objects_that_cannot_deliver(
    library: Pipeline, changes: dict[str, Any], locked: LockedSource | None
) -> None:
    """Otherwise, the plan is empty, the connector runs, heartbeats advance the slot, but rows never arrive."""
    with pytest.raises(RefusedError):
        refuse_unsafe(library, replace(DEPLOYED, **changes), locked)


def test_messages_need_no_table(library: Pipeline, environment: Environment) -> None:
    """A table with the default name is ignored."""
    source = library.source.model_copy(update={"message_prefix": "outbox"})
    messages = library.model_copy(update={"source": source})
    assert objects(messages, environment, EMPTY) == ["publication library_outbox", "slot library_outbox"]
    refuse_unsafe(messages, replace(DEPLOYED, columns={"id": "bigint"}), None)
    refuse_unsafe(messages, replace(DEPLOYED, publication={**PUBLICATION, "tables": []}), None)
