"""What verify says of the source database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.postgres.samples import DEPLOYED, EMPTY, LOCKED, PUBLICATION, SLOT, by_tenant

from outbox_kit.checking import Check, Status
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres import checks
from outbox_kit.postgres.state import COLUMN_TYPES, ActualDatabase

IDS = [
    "postgres.slot",
    "postgres.publication",
    "postgres.publication-older-than-slot",
    "postgres.identity",
    "postgres.table",
    "postgres.connector-role",
    "postgres.wal-level",
]
ROLE = {"can_login": True, "can_replicate": True, "can_read": True}


def run(
    pipeline: Pipeline,
    environment: Environment,
    actual: ActualDatabase,
    locked: LockedSource | None = LOCKED,
) -> dict[str, Check]:
    return {check.id: check for check in checks.run(pipeline, environment, actual, locked)}


def test_a_deployed_database_passes(library: Pipeline, environment: Environment) -> None:
    found = run(library, environment, DEPLOYED)
    assert list(found) == IDS
    assert {check.status for check in found.values()} == {Status.PASS}
    assert all(check.seen and check.expected and not check.remedy for check in found.values())


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"slot": None}, "postgres.slot", "no slot library_outbox"),
    (
        {"slot": {**SLOT, "active": False, "retained_bytes": 99}},
        "postgres.slot",
        "pgoutput, not active, WAL reserved, 99 bytes retained",
    ),
    (
        {"slot": {**SLOT, "wal_status": "lost"}},
        "postgres.slot",
        "pgoutput, active, WAL lost, 0 bytes retained",
    ),
    (
        {"slot": {**SLOT, "wal_status": "unreserved"}},
        "postgres.slot",
        "pgoutput, active, WAL unreserved, 0 bytes retained",
    ),
    (
        {"slot": {**SLOT, "plugin": "wal2json"}},
        "postgres.slot",
        "wal2json, active, WAL reserved, 0 bytes retained",
    ),
    (
        {"publication": {**PUBLICATION, "pubdelete": True}},
        "postgres.publication",
        "insert, delete of public.outbox_event, via root",
    ),
    (
        {"publication": {**PUBLICATION, "pubviaroot": False}},
        "postgres.publication",
        "insert of public.outbox_event, not via root",
    ),
    (
        {"publication": {**PUBLICATION, "tables": ["public.a", "public.outbox_event"]}},
        "postgres.publication",
        "insert of public.a, public.outbox_event, via root",
    ),
    ({"publication": {**PUBLICATION, "oid": 17000}}, "postgres.publication-older-than-slot", "oid 17000"),
    (
        {"publication": {**PUBLICATION, "filtered": True}},
        "postgres.publication",
        "insert of public.outbox_event, some rows only, via root",
    ),
    ({"system_identifier": "7302"}, "postgres.identity", "system identifier 7302, timeline 1"),
    ({"timeline": 2}, "postgres.identity", "system identifier 7301, timeline 2"),
    ({"columns": {**COLUMN_TYPES, "id": "text"}}, "postgres.table", "id is text, not uuid"),
    ({"role": None}, "postgres.connector-role", "reader lacks login, replication, select on the table"),
    ({"role": {**ROLE, "can_replicate": False}}, "postgres.connector-role", "reader lacks replication"),
    ({"wal_level": "replica"}, "postgres.wal-level", "replica"),
]


@pytest.mark.parametrize(("changes", "identifier", "seen"), CASES, ids=[f"{i}: {s}" for _, i, s in CASES])
def test_each_fault_fails_its_check_alone(
    library: Pipeline, environment: Environment, changes: dict[str, Any], identifier: str, seen: str
) -> None:
    found = run(library, environment, replace(DEPLOYED, **changes))
    failed = [check for check in found.values() if check.status is not Status.PASS]
    assert [check.id for check in failed] == [identifier]
    assert failed[0].seen == seen
    assert failed[0].remedy


def test_a_slot_that_keeps_more_than_it_should_still_delivers(library: Pipeline, environment: Environment) -> None:
    found = run(library, environment, replace(DEPLOYED, slot={**SLOT, "wal_status": "extended"}))
    assert found["postgres.slot"].status is Status.PASS


def test_a_missing_publication(library: Pipeline, environment: Environment) -> None:
    found = run(library, environment, replace(DEPLOYED, publication=None))
    assert found["postgres.publication"].seen == "no publication library_outbox"
    assert found["postgres.publication-older-than-slot"].seen == "oid none"


def test_without_a_lock_identity_is_not_known(library: Pipeline, environment: Environment) -> None:
    found = run(library, environment, DEPLOYED, None)
    failed = [check.id for check in found.values() if check.status is Status.FAIL]
    assert failed == ["postgres.publication-older-than-slot", "postgres.identity"]
    assert found["postgres.identity"].expected == "a lock file"


def test_what_identity_expects_and_advises(library: Pipeline, environment: Environment) -> None:
    check = run(library, environment, replace(DEPLOYED, timeline=2))["postgres.identity"]
    assert check.expected == "system identifier 7301, timeline 1"
    assert "`outbox apply --recover`" in check.remedy


def test_a_missing_partition_field_fails_the_table(library: Pipeline, environment: Environment) -> None:
    found = run(by_tenant(library), environment, DEPLOYED)
    assert found["postgres.table"].seen == "tenant, the partition_field of book, is missing"


def test_an_empty_database_still_answers_every_check(library: Pipeline, environment: Environment) -> None:
    assert list(run(library, environment, EMPTY)) == IDS
