"""Checks of `outbox verify` on the source database: server, outbox table, the connector's role."""

from __future__ import annotations

import re
from dataclasses import dataclass

from outbox_kit.errors import RECOVER
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres.state import ActualDatabase, column_problems
from outbox_kit.postgres.verify_queries import Details
from outbox_kit.rules import Finding, Rules, Severity

# A prepared transaction that is never finished keeps the slot, and with it the WAL, from advancing.
FORGOTTEN_S = 3600
DAY_S = 24 * 60 * 60
REQUIRED = ("id", "aggregate_type", "aggregate_id", "event_type", "created_at")


@dataclass(frozen=True)
class DatabaseSnapshot:
    """Input of the checks."""

    pipeline: Pipeline
    environment: Environment
    locked: LockedSource | None
    actual: ActualDatabase
    details: Details

    @property
    def uses_table(self) -> bool:
        return self.pipeline.source.uses_table


RULES = Rules[DatabaseSnapshot]()
# Result of the table's checks where events are messages.
NO_TABLE = "no table: events are logical decoding messages"


@RULES.rule(
    "postgres.reachable",
    guards="the source database responds",
    remedy="check source.host, port, database and login in the environment file",
)
def _reachable(snapshot: DatabaseSnapshot) -> Finding:
    actual = snapshot.actual
    return Finding(True, f"PostgreSQL {actual.version // 10_000}, database {actual.database}", "a response")


@RULES.rule(
    "postgres.primary",
    guards="outbox-kit and the connector connect to the primary, not to a standby",
    remedy="set source.host to the primary",
)
def _primary(snapshot: DatabaseSnapshot) -> Finding:
    standby = snapshot.actual.standby
    return Finding(not standby, "a standby" if standby else "the primary", "the primary")


@RULES.rule(
    "postgres.identity",
    guards="the database is the one that was deployed to, not a copy, a restored or a promoted one",
    remedy=f"the database was replaced, or promoted after the deployment: check source.host; {RECOVER}",
)
def _identity(snapshot: DatabaseSnapshot) -> Finding:
    actual, locked = snapshot.actual, snapshot.locked
    if not actual.system_identifier:
        remedy = "as an administrator: grant execute on function pg_control_system() to this login"
        return Finding(None, "this login may not execute pg_control_system()", "a known database", remedy)
    identity = f"system identifier {actual.system_identifier}, timeline {actual.timeline}"
    if locked is None:
        return Finding(False, identity, "a lock file with the identity of the database")
    expected = f"system identifier {locked.system_identifier}, timeline {locked.timeline}"
    return Finding(identity == expected, identity, expected)


@RULES.rule(
    "postgres.wal-level",
    guards="the WAL contains what logical decoding needs",
    remedy="set wal_level = logical and restart PostgreSQL",
)
def _wal_level(snapshot: DatabaseSnapshot) -> Finding:
    return Finding(snapshot.actual.wal_level == "logical", snapshot.actual.wal_level, "logical")


@RULES.rule(
    "postgres.connector-role",
    guards="the connector's role can log in, replicate, read the table and write its heartbeat",
    remedy="alter role ... with login replication (Amazon RDS: grant rds_replication); `outbox apply` grants the rest",
)
def _role(snapshot: DatabaseSnapshot) -> Finding:
    role, name = snapshot.actual.role, snapshot.environment.source.connector.user
    privileges = {
        "login": role and role["can_login"],
        "replication": role and role["can_replicate"],
        "select on the table": not snapshot.uses_table or (role and role["can_read"]),
        "execute pg_logical_emit_message": snapshot.details.may_emit,
    }
    missing = [privilege for privilege, granted in privileges.items() if not granted]
    actual = f"{name} lacks {', '.join(missing)}" if missing else f"{name} has all"
    return Finding(not missing, actual, f"{name}: {', '.join(privileges)}")


@RULES.rule(
    "postgres.table",
    guards="the outbox table has the columns of the [contract](contract.md), and every `partition_field`",
    remedy="add the column again, or set its name under source.columns; docs/operations.md, column renamed",
)
def _table(snapshot: DatabaseSnapshot) -> Finding:
    if not snapshot.uses_table:
        return Finding(True, NO_TABLE, "messages")
    expected = "every column of the contract"
    problems = column_problems(snapshot.pipeline, snapshot.actual.columns)
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "postgres.not-null",
    guards="id, aggregate type, key, event type and time are never null: such rows would be dead letters",
    remedy="alter table ... alter column ... set not null",
)
def _not_null(snapshot: DatabaseSnapshot) -> Finding:
    if not snapshot.uses_table:
        return Finding(True, NO_TABLE, "messages")
    names = snapshot.pipeline.source.columns.model_dump()
    required = [names[role] for role in REQUIRED]
    nullable = [name for name in required if name in snapshot.details.nullable]
    actual = f"may be null: {', '.join(nullable)}" if nullable else "none may be null"
    return Finding(not nullable, actual, f"not null: {', '.join(required)}")


@RULES.rule(
    "postgres.key-not-empty",
    guards="the table rejects an empty key, which would be a dead letter",
    remedy="alter table ... add check (<key column> <> '')",
    severity=Severity.WARNING,
)
def _key_not_empty(snapshot: DatabaseSnapshot) -> Finding:
    if not snapshot.uses_table:
        return Finding(True, NO_TABLE, "messages")
    key = snapshot.pipeline.source.columns.aggregate_id
    name = rf'(?<![\w"])\(?"?{re.escape(key)}"?\)?(?:::text)?'
    pattern = re.compile(rf"{name} <> ''(::text)?|length\({name}\) (> 0|>= 1)")
    rejected = any(pattern.search(text) and " OR " not in text for text in snapshot.details.constraints)
    return Finding(rejected, "rejected" if rejected else f"no check on {key}", f"check ({key} <> '')")


@RULES.rule(
    "postgres.partition-field",
    guards="no key in the latest rows has several `partition_field` values: a tombstone would miss the old partition",
    remedy="write a tombstone with the old value first; do not use a column that changes as partition_field",
)
def _partition_field(snapshot: DatabaseSnapshot) -> Finding:
    expected = "one value per key among the latest rows"
    if not snapshot.uses_table:
        return Finding(None, f"{NO_TABLE}, which are not stored", expected)
    moved_keys = snapshot.details.moved_keys
    if moved_keys is None:
        return Finding(None, snapshot.details.unsampled or "this login may not read the table", expected)
    problems = [f"{name}: {count} keys with several values" for name, count in moved_keys.items() if count]
    return Finding(not problems, "; ".join(problems) or ", ".join(moved_keys) or "no aggregate has one", expected)


@RULES.rule(
    "postgres.prepared-transactions",
    guards="no old prepared transaction holds back the slot; max_prepared_transactions is above 0 for a two-phase slot",
    remedy="commit prepared or rollback prepared what pg_prepared_xacts lists",
)
def _prepared(snapshot: DatabaseSnapshot) -> Finding:
    usage, limit = snapshot.details.usage, snapshot.details.settings["max_prepared_transactions"]
    if snapshot.actual.slot and snapshot.actual.slot.two_phase and not limit:
        remedy = "set max_prepared_transactions and restart PostgreSQL"
        return Finding(False, "the slot is two-phase, max_prepared_transactions is 0", "room for them", remedy)
    passed = not usage["prepared"] or usage["prepared_s"] <= FORGOTTEN_S
    actual = f"{usage['prepared']} prepared, the oldest for {usage['prepared_s']} s"
    return Finding(passed, actual, f"none older than {FORGOTTEN_S} s")


@RULES.rule(
    "postgres.free-slots",
    guards="one replication slot is free: a second pipeline, a base backup or --recover needs it",
    remedy="drop slots that are not used, or raise max_replication_slots and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_slots(snapshot: DatabaseSnapshot) -> Finding:
    return _free(snapshot.details.usage["slots"], snapshot.details.settings["max_replication_slots"])


@RULES.rule(
    "postgres.free-wal-senders",
    guards="one WAL sender is free: a connector that reconnects may briefly need a second one",
    remedy="raise max_wal_senders and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_senders(snapshot: DatabaseSnapshot) -> Finding:
    return _free(snapshot.details.usage["senders"], snapshot.details.settings["max_wal_senders"])


def _free(used: int, limit: int) -> Finding:
    return Finding(used < limit, f"{used} of {limit} in use", "one free")


@RULES.rule(
    "postgres.idle-slot-timeout",
    guards="PostgreSQL 18 does not invalidate the slot while the connector is stopped for a night",
    remedy="set idle_replication_slot_timeout to 0, or longer than the connector is ever stopped",
    severity=Severity.WARNING,
)
def _idle_slot_timeout(snapshot: DatabaseSnapshot) -> Finding:
    timeout = snapshot.details.settings.get("idle_replication_slot_timeout")
    if timeout is None:
        return Finding(True, f"PostgreSQL {snapshot.actual.version // 10_000} has none", "0, or at least a day")
    return Finding(timeout == 0 or timeout >= DAY_S, f"{timeout} s", f"0, or at least {DAY_S} s")
