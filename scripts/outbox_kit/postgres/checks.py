"""Checks of `outbox verify` on the source database: server, outbox table, the connector's role."""

from __future__ import annotations

import re
from dataclasses import dataclass

from outbox_kit.errors import RECOVER_HINT
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres.state import ActualDatabase, column_problems
from outbox_kit.postgres.verify_queries import AdditionalState
from outbox_kit.rules import Finding, Rules, Severity

# Maximum age of a prepared transaction. A slot does not advance past the transaction, so the server retains WAL.
MAX_PREPARED_AGE_S = 3600
DAY_S = 24 * 60 * 60
NOT_NULL_COLUMNS = ("id", "aggregate_type", "aggregate_id", "event_type", "created_at")


@dataclass(frozen=True)
class DatabaseState:
    pipeline: Pipeline
    environment: Environment
    locked_source: LockedSource | None
    actual: ActualDatabase
    additional: AdditionalState

    @property
    def uses_table(self) -> bool:
        return self.pipeline.source.uses_table


RULES = Rules[DatabaseState]()
NO_TABLE = "no table: events are logical decoding messages"


@RULES.rule(
    "postgres.reachable",
    condition="the source database responds",
    remedy="check source.host, port, database and login in the environment file",
)
def _reachable(state: DatabaseState) -> Finding:
    actual = state.actual
    return Finding(True, f"PostgreSQL {actual.version // 10_000}, database {actual.database}", "a response")


@RULES.rule(
    "postgres.primary",
    condition="outbox-kit and the connector connect to the primary, not to a standby",
    remedy="set source.host to the host of the primary",
)
def _primary(state: DatabaseState) -> Finding:
    is_standby = state.actual.is_standby
    return Finding(not is_standby, "a standby" if is_standby else "the primary", "the primary")


@RULES.rule(
    "postgres.identity",
    condition="the database has the identity in the lock file: it was not replaced, restored or promoted",
    remedy=f"check source.host; if the database was replaced, restored or promoted: {RECOVER_HINT}",
)
def _identity(state: DatabaseState) -> Finding:
    actual, locked_source = state.actual, state.locked_source
    if not actual.system_identifier:
        role = (state.environment.source.verifier or state.environment.source.admin).user
        remedy = f"run `grant execute on function pg_control_system() to {role}` as an administrator"
        return Finding(None, f"{role} has no permission to execute pg_control_system()", "a readable identity", remedy)
    identity = f"system identifier {actual.system_identifier}, timeline {actual.timeline}"
    if locked_source is None:
        return Finding(False, identity, "a lock file with the identity of the database")
    expected = f"system identifier {locked_source.system_identifier}, timeline {locked_source.timeline}"
    return Finding(identity == expected, identity, expected)


@RULES.rule(
    "postgres.wal-level",
    condition="wal_level is `logical`, as logical decoding requires",
    remedy="set wal_level = logical and restart PostgreSQL",
)
def _wal_level(state: DatabaseState) -> Finding:
    return Finding(state.actual.wal_level == "logical", state.actual.wal_level, "logical")


@RULES.rule(
    "postgres.connector-role",
    condition="the connector's role can log in, replicate, read the table and write its heartbeat",
    remedy="alter role ... with login replication (Amazon RDS: grant rds_replication), then run `outbox apply`",
)
def _role(state: DatabaseState) -> Finding:
    role, name = state.actual.role, state.environment.source.connector.user
    privileges = {
        "login": role and role["can_login"],
        "replication": role and role["can_replicate"],
        "select on the table": not state.uses_table or (role and role["can_read"]),
        "execute pg_logical_emit_message": state.additional.can_emit,
    }
    missing_privileges = [privilege for privilege, granted in privileges.items() if not granted]
    actual = f"{name} lacks {', '.join(missing_privileges)}" if missing_privileges else f"{name} has all privileges"
    return Finding(not missing_privileges, actual, f"{name}: {', '.join(privileges)}")


@RULES.rule(
    "postgres.table",
    condition="the outbox table has the columns of the [contract](contract.md), and every `partition_field`",
    remedy="add or alter the column, or set its name under source.columns; see docs/operations.md",
)
def _table(state: DatabaseState) -> Finding:
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    expected = "every column of the contract"
    problems = column_problems(state.pipeline, state.actual.columns)
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "postgres.not-null",
    condition="id, aggregate type, key, event type and time are not null; otherwise rows become dead letters",
    remedy="alter table ... alter column ... set not null",
)
def _not_null(state: DatabaseState) -> Finding:
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    checked_columns = [getattr(state.pipeline.source.columns, key) for key in NOT_NULL_COLUMNS]
    nullable_columns = [name for name in checked_columns if name in state.additional.nullable_columns]
    actual = f"nullable: {', '.join(nullable_columns)}" if nullable_columns else "no column is nullable"
    return Finding(not nullable_columns, actual, f"not null: {', '.join(checked_columns)}")


@RULES.rule(
    "postgres.key-not-empty",
    condition="the table rejects rows with an empty key, which would become dead letters",
    remedy="alter table ... add check (KEY <> '')",
    severity=Severity.WARNING,
)
def _key_not_empty(state: DatabaseState) -> Finding:
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    column = state.pipeline.source.columns.aggregate_id
    operand = rf'(?<![\w"])\(?"?{re.escape(column)}"?\)?(?:::text)?'
    pattern = re.compile(rf"{operand} <> ''(::text)?|length\({operand}\) (> 0|>= 1)")
    passed = any(pattern.search(text) and " OR " not in text for text in state.additional.check_constraints)
    return Finding(passed, f"{'a' if passed else 'no'} check on {column}", f"check ({column} <> '')")


@RULES.rule(
    "postgres.partition-field",
    condition="the latest rows of a key have the same `partition_field`; otherwise keys move to other partitions",
    remedy="use an immutable column, or write a tombstone with the old value before a row with a new value",
)
def _partition_field(state: DatabaseState) -> Finding:
    expected = "one value per key among the latest rows"
    if not state.uses_table:
        return Finding(None, f"{NO_TABLE}, which are not stored", expected)
    counts = state.additional.moved_key_counts
    if counts is None:
        return Finding(None, state.additional.sampling_error or "no permission to read the table", expected)
    problems = [f"{name}: {count} keys with several values" for name, count in counts.items() if count]
    return Finding(not problems, "; ".join(problems) or (expected if counts else "no partition_field"), expected)


@RULES.rule(
    "postgres.prepared-transactions",
    condition="no old prepared transaction blocks the slot; for a two-phase slot max_prepared_transactions is above 0",
    remedy="run COMMIT PREPARED or ROLLBACK PREPARED for the transactions in pg_prepared_xacts",
)
def _prepared(state: DatabaseState) -> Finding:
    usage, limit = state.additional.usage, state.additional.settings["max_prepared_transactions"]
    if state.actual.slot and state.actual.slot.two_phase and not limit:
        remedy = "set max_prepared_transactions to 1 or more, and restart PostgreSQL"
        return Finding(False, "max_prepared_transactions is 0, but the slot is two-phase", "1 or more", remedy)
    passed = not usage["prepared"] or usage["prepared_s"] <= MAX_PREPARED_AGE_S
    actual = f"{usage['prepared']} prepared transactions, maximum age {usage['prepared_s']} s"
    return Finding(passed, actual, f"no prepared transaction older than {MAX_PREPARED_AGE_S} s")


@RULES.rule(
    "postgres.free-slots",
    condition="one replication slot is free for a second pipeline, a base backup or --recover",
    remedy="drop slots that are not used, or raise max_replication_slots and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_slots(state: DatabaseState) -> Finding:
    return _free_finding(state.additional.usage["slots"], state.additional.settings["max_replication_slots"])


@RULES.rule(
    "postgres.free-wal-senders",
    condition="one WAL sender is free for a connector that reconnects",
    remedy="raise max_wal_senders and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_senders(state: DatabaseState) -> Finding:
    return _free_finding(state.additional.usage["senders"], state.additional.settings["max_wal_senders"])


def _free_finding(used_count: int, limit: int) -> Finding:
    return Finding(used_count < limit, f"{used_count} of {limit} in use", "at least one free")


@RULES.rule(
    "postgres.idle-slot-timeout",
    condition="PostgreSQL 18 does not invalidate a slot that is inactive for less than a day",
    remedy="set idle_replication_slot_timeout to 0, or to more than the longest time without a running connector",
    severity=Severity.WARNING,
)
def _idle_slot_timeout(state: DatabaseState) -> Finding:
    timeout_s, expected = state.additional.settings.get("idle_replication_slot_timeout"), f"0, or at least {DAY_S} s"
    if timeout_s is None:
        return Finding(True, "this PostgreSQL version has no idle_replication_slot_timeout", expected)
    return Finding(timeout_s == 0 or timeout_s >= DAY_S, f"{timeout_s} s", expected)
