"""What `outbox verify` checks in the source database: the server, the table, the connector's role."""

from __future__ import annotations

import re
from dataclasses import dataclass

from outbox_kit.errors import RECOVER
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres.state import ActualDatabase, column_problems
from outbox_kit.postgres.verify_queries import Details
from outbox_kit.rules import Finding, Rule, Severity, rule

# A prepared transaction that nobody ends holds the slot, and with it the WAL, for as long.
FORGOTTEN_S = 3600
DAY_S = 24 * 60 * 60
REQUIRED = ("id", "aggregate_type", "aggregate_id", "event_type", "created_at")


@dataclass(frozen=True)
class Look:
    """Everything that the checks of the database look at."""

    pipeline: Pipeline
    environment: Environment
    locked: LockedSource | None
    actual: ActualDatabase
    details: Details

    @property
    def has_table(self) -> bool:
        """False where events are messages."""
        return self.pipeline.source.uses_table


RULES: list[Rule[Look]] = []
# What the checks of the table say where there is none.
NO_TABLE = "no table: events are messages"


@rule(
    RULES,
    "postgres.reachable",
    guards="the source database answers",
    remedy="check source.host, port, database and login in the environment file",
)
def _reachable(look: Look) -> Finding:
    return Finding(True, f"PostgreSQL {look.actual.version // 10_000}, database {look.actual.database}", "an answer")


@rule(
    RULES,
    "postgres.primary",
    guards="the kit and the connector talk to the primary, not to a standby",
    remedy="name the primary in source.host",
)
def _primary(look: Look) -> Finding:
    return Finding(not look.actual.standby, "a standby" if look.actual.standby else "the primary", "the primary")


@rule(
    RULES,
    "postgres.identity",
    guards="this is the database that was deployed to, not a copy, a restored or a promoted one",
    remedy=f"another database than was deployed to, or promoted since: check source.host; {RECOVER}",
)
def _identity(look: Look) -> Finding:
    actual, locked = look.actual, look.locked
    if not actual.system_identifier:
        remedy = "as an administrator: grant execute on function pg_control_system() to this login"
        return Finding(None, "this login may not execute pg_control_system()", "a known database", remedy)
    seen = f"system identifier {actual.system_identifier}, timeline {actual.timeline}"
    if locked is None:
        return Finding(False, seen, "a lock file that knows the database")
    expected = f"system identifier {locked.system_identifier}, timeline {locked.timeline}"
    return Finding(seen == expected, seen, expected)


@rule(
    RULES,
    "postgres.wal-level",
    guards="the server writes what logical decoding needs",
    remedy="set wal_level = logical and restart PostgreSQL",
)
def _wal_level(look: Look) -> Finding:
    return Finding(look.actual.wal_level == "logical", look.actual.wal_level, "logical")


@rule(
    RULES,
    "postgres.connector-role",
    guards="the connector's role can log in, replicate, read the table and write its heartbeat",
    remedy="alter role ... with login replication (Amazon RDS: grant rds_replication); `outbox apply` grants the rest",
)
def _role(look: Look) -> Finding:
    role, name = look.actual.role, look.environment.source.connector.user
    powers = {
        "login": role and role["can_login"],
        "replication": role and role["can_replicate"],
        "select on the table": not look.has_table or (role and role["can_read"]),
        "execute pg_logical_emit_message": look.details.may_emit,
    }
    lacking = [word for word, has in powers.items() if not has]
    seen = f"{name} lacks {', '.join(lacking)}" if lacking else f"{name} has all"
    return Finding(not lacking, seen, f"{name}: {', '.join(powers)}")


@rule(
    RULES,
    "postgres.table",
    guards="the outbox table has the columns of the [contract](contract.md), and every `partition_field`",
    remedy="bring the column back, or name it under source.columns; docs/operations.md, column renamed",
)
def _table(look: Look) -> Finding:
    if not look.has_table:
        return Finding(True, NO_TABLE, "messages")
    problems = column_problems(look.pipeline, look.actual.columns)
    return Finding(not problems, "; ".join(problems) or "every column of the contract", "every column of the contract")


@rule(
    RULES,
    "postgres.not-null",
    guards="no row can come without id, route, key, event type or time: each would be a dead letter",
    remedy="alter table ... alter column ... set not null",
)
def _not_null(look: Look) -> Finding:
    if not look.has_table:
        return Finding(True, NO_TABLE, "messages")
    names = look.pipeline.source.columns.model_dump()
    nullable = [names[each] for each in REQUIRED if names[each] in look.details.nullable]
    seen = f"may be null: {', '.join(nullable)}" if nullable else "none may be null"
    return Finding(not nullable, seen, f"not null: {', '.join(names[each] for each in REQUIRED)}")


@rule(
    RULES,
    "postgres.key-not-empty",
    guards="the table refuses an empty key, which would be a dead letter",
    remedy="alter table ... add check (<key column> <> '')",
    severity=Severity.WARNING,
)
def _key_not_empty(look: Look) -> Finding:
    if not look.has_table:
        return Finding(True, NO_TABLE, "messages")
    key = look.pipeline.source.columns.aggregate_id
    name = rf'(?<![\w"])\(?"?{re.escape(key)}"?\)?(?:::text)?'
    refuses = re.compile(rf"{name} <> ''(::text)?|length\({name}\) (> 0|>= 1)")
    good = any(refuses.search(text) and " OR " not in text for text in look.details.constraints)
    return Finding(good, "refused" if good else f"no check on {key}", f"check ({key} <> '')")


@rule(
    RULES,
    "postgres.partition-field",
    guards="the newest rows show no key whose `partition_field` changed: its tombstone would miss the old partition",
    remedy="write a tombstone under the old value first; a column that changes is no partition_field",
)
def _partition_field(look: Look) -> Finding:
    expected = "one value per key among the newest rows"
    if not look.has_table:
        return Finding(None, f"{NO_TABLE}, and leave nothing to look at", expected)
    moved = look.details.moved
    if moved is None:
        return Finding(None, look.details.unsampled or "this login may not read the table", expected)
    wrong = [f"{kind}: {keys} keys with several values" for kind, keys in moved.items() if keys]
    return Finding(not wrong, "; ".join(wrong) or (", ".join(moved) or "no aggregate has one"), expected)


@rule(
    RULES,
    "postgres.prepared-transactions",
    guards="no forgotten prepared transaction holds the slot back; a two-phase slot has room for them",
    remedy="commit prepared or rollback prepared what pg_prepared_xacts shows",
)
def _prepared(look: Look) -> Finding:
    used, allowed = look.details.used, look.details.settings["max_prepared_transactions"]
    two_phase = bool(look.details.slot and look.details.slot["two_phase"])
    expected = f"none older than {FORGOTTEN_S} s"
    if two_phase and not allowed:
        remedy = "set max_prepared_transactions and restart PostgreSQL"
        return Finding(False, "the slot is two-phase, max_prepared_transactions is 0", "room for them", remedy)
    good = not used["prepared"] or used["prepared_s"] <= FORGOTTEN_S
    return Finding(good, f"{used['prepared']} prepared, the oldest for {used['prepared_s']} s", expected)


@rule(
    RULES,
    "postgres.free-slots",
    guards="one replication slot is free: a second pipeline, a base backup or --recover needs it",
    remedy="drop slots that nobody reads, or raise max_replication_slots and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_slots(look: Look) -> Finding:
    return _free(look.details.used["slots"], look.details.settings["max_replication_slots"])


@rule(
    RULES,
    "postgres.free-wal-senders",
    guards="one WAL sender is free: a connector that comes back may need a second one for a moment",
    remedy="raise max_wal_senders and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_senders(look: Look) -> Finding:
    return _free(look.details.used["senders"], look.details.settings["max_wal_senders"])


def _free(used: int, allowed: int) -> Finding:
    return Finding(used < allowed, f"{used} of {allowed} in use", "one free")


@rule(
    RULES,
    "postgres.idle-slot-timeout",
    guards="PostgreSQL 18 does not throw the slot away while the connector rests for a night",
    remedy="set idle_replication_slot_timeout to 0, or to more than the longest rest of the connector",
    severity=Severity.WARNING,
)
def _idle_slot_timeout(look: Look) -> Finding:
    timeout = look.details.settings.get("idle_replication_slot_timeout")
    if timeout is None:
        return Finding(True, f"PostgreSQL {look.actual.version // 10_000} has none", "0, or a day at least")
    return Finding(timeout == 0 or timeout >= DAY_S, f"{timeout} s", f"0, or {DAY_S} s at least")
