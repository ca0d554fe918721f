"""What `outbox verify` checks in the source database."""

from __future__ import annotations

from outbox_kit.checking import Check, check
from outbox_kit.errors import RECOVER
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres.state import ActualDatabase, column_problems


def run(
    pipeline: Pipeline, environment: Environment, actual: ActualDatabase, locked: LockedSource | None
) -> list[Check]:
    """All checks of the database, worst consequences first."""
    return [
        _slot(pipeline, actual),
        _publication(pipeline, actual),
        _publication_identity(actual, locked),
        _identity(actual, locked),
        _table(pipeline, actual),
        _role(environment, actual),
        check(
            "postgres.wal-level",
            actual.wal_level == "logical",
            seen=actual.wal_level,
            expected="logical",
            remedy="set wal_level = logical and restart PostgreSQL",
        ),
    ]


def _slot(pipeline: Pipeline, actual: ActualDatabase) -> Check:
    slot = actual.slot
    expected = "pgoutput, active, WAL reserved"
    if slot is None:
        seen = f"no slot {pipeline.source.slot}"
    else:
        state = "active" if slot["active"] else "not active"
        seen = f"{slot['plugin']}, {state}, WAL {slot['wal_status']}, {slot['retained_bytes']} bytes retained"
    good = slot is not None and slot["plugin"] == "pgoutput" and slot["active"]
    good = good and slot is not None and slot["wal_status"] in ("reserved", "extended")
    return check(
        "postgres.slot",
        good,
        seen=seen,
        expected=expected,
        remedy="is the connector running? see docs/operations.md",
    )


def _publication(pipeline: Pipeline, actual: ActualDatabase) -> Check:
    publication = actual.publication
    if publication is None:
        seen = f"no publication {pipeline.source.publication}"
    else:
        operations = [name for name in ("insert", "update", "delete", "truncate") if publication[f"pub{name}"]]
        root = "via root" if publication["pubviaroot"] else "not via root"
        rows = ", some rows only" if publication["filtered"] else ""
        seen = f"{', '.join(operations)} of {', '.join(publication['tables'])}{rows}, {root}"
    expected = f"insert of {pipeline.source.table}, via root"
    remedy = f"alter publication {pipeline.source.publication}: the table, publish = 'insert', via partition root"
    return check("postgres.publication", seen == expected, seen=seen, expected=expected, remedy=remedy)


def _publication_identity(actual: ActualDatabase, locked: LockedSource | None) -> Check:
    seen = str(actual.publication["oid"]) if actual.publication else "none"
    expected = str(locked.publication_oid) if locked else "a lock file"
    return check(
        "postgres.publication-older-than-slot",
        seen == expected,
        seen=f"oid {seen}",
        expected=f"oid {expected}, as when the slot was made",
        remedy="the publication was made anew after the slot: rows in between are gone; recreate the slot, republish",
    )


def _identity(actual: ActualDatabase, locked: LockedSource | None) -> Check:
    seen = f"system identifier {actual.system_identifier}, timeline {actual.timeline}"
    expected = f"system identifier {locked.system_identifier}, timeline {locked.timeline}" if locked else "a lock file"
    return check(
        "postgres.identity",
        seen == expected,
        seen=seen,
        expected=expected,
        remedy=f"another database than was deployed to, or promoted since: check source.host; {RECOVER}",
    )


def _table(pipeline: Pipeline, actual: ActualDatabase) -> Check:
    problems = column_problems(pipeline, actual.columns)
    return check(
        "postgres.table",
        not problems,
        seen="; ".join(problems) or "every column of the contract",
        expected="every column of the contract",
        remedy="see docs/contract.md",
    )


def _role(environment: Environment, actual: ActualDatabase) -> Check:
    role, name = actual.role, environment.source.connector.user
    powers = {"login": "can_login", "replication": "can_replicate", "select on the table": "can_read"}
    lacking = [word for word, key in powers.items() if not (role and role[key])]
    return check(
        "postgres.connector-role",
        not lacking,
        seen=f"{name} lacks {', '.join(lacking)}" if lacking else f"{name} has all",
        expected=f"{name}: {', '.join(powers)}",
        remedy=f"alter role {name} with login replication; then apply grants the rest",
    )
