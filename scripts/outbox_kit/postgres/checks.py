"""Check the source database for `outbox verify`: the server, the outbox table, and the connector's role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres import ddl
from outbox_kit.postgres.role_limits import RoleProblem, limit_problems, privilege_statements
from outbox_kit.postgres.state import ActualDatabase, column_problems, has_new_table, renamed_column, wrong_columns
from outbox_kit.postgres.verify_queries import AdditionalState
from outbox_kit.results.checks import Finding, Rules, Severity
from outbox_kit.results.repair_commands import NEW_DATABASE_HINT, RECOVER_HINT, RESEND_HINT, resend_steps

# Maximum age of a prepared transaction. Until it ends, the slot does not advance past it, and the server retains WAL.
MAX_PREPARED_AGE_S = 3600
# Maximum clock difference without a warning. Record timestamps and event times come from the database server's clock.
MAX_CLOCK_SKEW_S = 30
DAY_S = 24 * 60 * 60
NOT_NULL_COLUMNS = ("id", "aggregate_type", "aggregate_id", "event_type", "created_at")


@dataclass(frozen=True)
class DatabaseState:
    """State of the source database, and its identity in the lock file, where name and cluster can be missing."""

    pipeline: Pipeline
    environment: Environment
    locked_source: LockedSource
    actual: ActualDatabase
    additional: AdditionalState
    recorded_name: str | None = None
    recorded_cluster_id: str | None = None

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
    condition="the database has the identity in the lock file: it was not replaced, restored or promoted, and its "
    "publication is not marked as that of another pipeline, environment or cluster",
    remedy=f"check source.host; after a promotion: {RECOVER_HINT}; {NEW_DATABASE_HINT}",
)
def _identity(state: DatabaseState) -> Finding:
    actual, locked_source = state.actual, state.locked_source
    if not actual.system_identifier:
        role = (state.environment.source.verifier or state.environment.source.admin).user
        remedy = f"run `grant execute on function pg_control_system() to {role}` as an administrator"
        return Finding(None, f"{role} has no permission to execute pg_control_system()", "a readable identity", remedy)
    identity = f"system identifier {actual.system_identifier}, timeline {actual.timeline}"
    expected = f"system identifier {locked_source.system_identifier}, timeline {locked_source.timeline}"
    is_same_name = state.recorded_name in (None, actual.database)
    if not is_same_name:
        identity, expected = f"{identity}, database {actual.database}", f"{expected}, database {state.recorded_name}"
    if identity == expected:
        return _mark(state, identity)
    is_same_database = is_same_name and actual.system_identifier == locked_source.system_identifier
    remedy = f"after a promotion: {RECOVER_HINT}" if is_same_database else NEW_DATABASE_HINT
    return Finding(False, identity, expected, f"check source.host and source.database; {remedy}")


def _mark(state: DatabaseState, identity: str) -> Finding:
    """Compare the mark of the publication, because a copy of a server's files has the same identity."""
    names = state.pipeline, state.environment, state.recorded_cluster_id
    comment, mark = (state.actual.publication or {}).get("comment"), ddl.publication_mark(*names)
    if not ddl.is_foreign_mark(comment, *names):
        return Finding(True, identity, identity)
    remedy = "check source.host; if only the comment of the publication is wrong, `outbox plan` shows how to adopt it"
    actual = f"publication {state.pipeline.source.publication} has the comment {comment!r}"
    return Finding(False, actual, f"the comment {mark!r}", remedy)


@RULES.rule(
    "postgres.wal-level",
    condition="wal_level is `logical`, as logical decoding requires, and does not change at the next restart",
    remedy="set wal_level = logical and restart PostgreSQL",
)
def _wal_level(state: DatabaseState) -> Finding:
    level = state.actual.wal_level
    if level == "logical" and state.additional.wal_level_changes:
        # A server that has a logical slot does not start with another wal_level.
        remedy = "run `alter system set wal_level = logical`, then `select pg_reload_conf()`, as a superuser"
        return Finding(False, "another value after the next restart of the server", "logical", remedy)
    return Finding(level == "logical", level, "logical")


@RULES.rule(
    "postgres.connector-role",
    condition="the connector's role has every required privilege; no expiry, limit or timeout can stop the connector",
    remedy="run `alter role ... with login replication` (Amazon RDS: `grant rds_replication`), then `outbox restart`",
)
def _role(state: DatabaseState) -> Finding:
    name = state.environment.source.connector.user
    role, privileges = sql.Identifier(name).as_string(None), _privileges(state)
    expected = f"{name}: {', '.join(privileges)}; no expiry, limit or timeout"
    if state.actual.role is None:
        remedy = f"run `create role {role} login replication` and `\\password {role}` in psql, then `outbox apply`"
        return Finding(False, f"no role {name}", expected, remedy)
    problems = [*_missing_privileges(state), *limit_problems(state.additional.role_limits, name, state.actual.database)]
    if not problems:
        return Finding(True, f"{name} has all privileges", expected)
    statements = "; ".join(problem.statement.as_string(None) for problem in problems)
    remedy = f"run `{statements}` as an administrator, then `outbox restart`"
    if not privileges["replication"]:
        remedy += f"; on Amazon RDS, `grant rds_replication to {role}` replaces `alter role {role} replication`"
    is_error = any(problem.severity is Severity.ERROR for problem in problems)
    severity = Severity.ERROR if is_error else Severity.WARNING
    return Finding(False, "; ".join(problem.text for problem in problems), expected, remedy, severity)


def _privileges(state: DatabaseState) -> dict[str, bool]:
    """Return a mapping from each privilege that the connector's role needs to whether the role has the privilege.

    Privileges on a missing table cannot be granted, so they count as present; postgres.table reports a missing table.
    """
    role, limits = state.actual.role or {}, state.additional.role_limits
    has_table = state.uses_table and bool(state.actual.columns)
    return {
        "login": bool(role.get("can_login")),
        "replication": bool(role.get("can_replicate")),
        "connect on the database": limits.can_connect,
        "usage on the schema": not has_table or limits.can_use_schema,
        "select on the table": not has_table or limits.can_select,
        "execute pg_logical_emit_message": state.additional.can_emit,
    }


def _missing_privileges(state: DatabaseState) -> Iterator[RoleProblem]:
    """Yield one problem that lists all privileges that the connector's role lacks, if it lacks any."""
    name = state.environment.source.connector.user
    missing = [privilege for privilege, granted in _privileges(state).items() if not granted]
    if missing:
        actual, table = state.actual, state.pipeline.source.table
        statements = privilege_statements(name, actual.database, table, actual.version)
        joined_statements = sql.SQL("; ").join(statements[privilege] for privilege in missing)
        yield RoleProblem(f"{name} lacks {', '.join(missing)}", joined_statements)


@RULES.rule(
    "postgres.table",
    condition="the outbox table has the columns of the [contract](contract.md), and every `partition_field`",
    remedy="run `alter table TABLE add column COLUMN TYPE` (or `alter column`, or `rename column`), or set the name of "
    f"the column under source.columns; then run {RESEND_HINT}",
)
def _table(state: DatabaseState) -> Finding:
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    expected = "every column of the contract"
    if not state.actual.columns:
        return Finding(False, f"no table {state.pipeline.source.table}", expected, "run `outbox apply`")
    problems = column_problems(state.pipeline, state.actual.columns)
    return Finding(not problems, "; ".join(problems) or expected, expected, _column_remedy(state))


def _column_remedy(state: DatabaseState) -> str:
    """Return the commands that restore the columns of the contract; empty if these columns are correct."""
    columns, actions, statements = state.actual.columns, [], []
    for name, types in wrong_columns(state.pipeline, columns).items():
        identifier, renamed = sql.Identifier(name), renamed_column(state.pipeline, columns, types)
        if name in columns:
            action = sql.SQL("alter column {0} type {1} using {0}::{1}").format(identifier, sql.SQL(types[-1]))
            actions.append(action)
        elif renamed is not None:
            action = sql.SQL("rename column {} to {}").format(sql.Identifier(renamed), identifier)
            statements.append(_alter_table(state, action))
        else:
            actions.append(sql.SQL("add column {} {}").format(identifier, sql.SQL(types[-1])))
    statements += [_alter_table(state, sql.SQL(", ").join(actions))] if actions else []
    if not statements:
        return ""
    commands = ", ".join(f"`{text}`" for text in statements)
    # The WAL contains a row with the columns that the table had when the row was written.
    return (
        f"if source.columns has the intended names: run {commands}; then {resend_steps(state.pipeline)}; if the task "
        "FAILS on a row that was written in the meantime, see docs/incidents.md, Column renamed"
    )


@RULES.rule(
    "postgres.table-identity",
    condition="the outbox table is the one that `outbox apply` recorded, and was not dropped and created again",
    remedy="run `outbox apply` with --allow for the table, `outbox backfill --restart`, then `outbox stuck --resend`",
)
def _table_identity(state: DatabaseState) -> Finding:
    expected, actual_oid = "the oid in the lock file", state.actual.table_oid
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    if actual_oid is None or state.locked_source.table_oid is None:
        actual = "no table" if actual_oid is None else "the lock file has no oid of the table"
        return Finding(None, actual, expected, "run `outbox apply`, which records the oid")
    remedy = f'run `outbox apply --allow "table {state.pipeline.source.table}"`; then {resend_steps(state.pipeline)}'
    publication = state.actual.publication
    if publication is not None and state.pipeline.source.table not in publication["tables"]:
        # The publication has the previous table, and `apply` refuses to run until the publication has the new table.
        remedy = f"run `{ddl.alter_publication(state.pipeline.source)[0].as_string(None)}`; then {remedy}"
    passed = not has_new_table(state.actual, state.locked_source)
    return Finding(passed, f"oid {actual_oid}", f"oid {state.locked_source.table_oid}, {expected}", remedy)


@RULES.rule(
    "postgres.triggers",
    condition="the table and its partitions have no BEFORE INSERT trigger, which could change or drop rows",
    remedy="check that the trigger changes no column of the contract and drops no row; otherwise run "
    f"`alter table TABLE disable trigger TRIGGER`, then {RESEND_HINT}",
    severity=Severity.WARNING,
)
def _triggers(state: DatabaseState) -> Finding:
    expected = "no BEFORE INSERT trigger"
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    hooks = state.additional.hooks
    triggers, commands = ", ".join(hooks.triggers), ", ".join(f"`{text}`" for text in hooks.disable_statements)
    steps = f"run {commands}; then {resend_steps(state.pipeline)}"
    remedy = f"if a trigger changes columns of the contract or drops rows: {steps}"
    return Finding(not triggers, triggers or expected, expected, remedy)


@RULES.rule(
    "postgres.rules",
    condition="no rule replaces INSERTs into the table; the rows of a replaced INSERT would never reach the topics",
    remedy=f"run `drop rule ... on ...`; then run {RESEND_HINT}",
)
def _rules(state: DatabaseState) -> Finding:
    expected = "no INSTEAD rule for INSERT"
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    rules, table = state.additional.hooks.rules, ddl.qualified_name(state.pipeline.source.table)
    statements = [sql.SQL("drop rule {} on {}").format(sql.Identifier(rule), table).as_string(None) for rule in rules]
    remedy = f"run `{'; '.join(statements)}`; then {resend_steps(state.pipeline)}"
    return Finding(not rules, ", ".join(rules) or expected, expected, remedy)


@RULES.rule(
    "postgres.other-tables",
    condition="neither a child of the outbox table (INHERITS) nor an unpublished table of the same name in another "
    "schema has rows; rows that services insert there are never delivered",
    remedy="make the service write to the outbox table (see its search_path), run `alter table ... no inherit ...` and "
    f"`alter table ... rename to ...` for the other table, then run {RESEND_HINT}",
    severity=Severity.WARNING,
)
def _other_tables(state: DatabaseState) -> Finding:
    expected = "no other table with rows"
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    tables = [table for table in state.additional.other_tables if table.has_rows]
    unknown = ", ".join(table.text for table in state.additional.other_tables if table.has_rows is None)
    if unknown and not tables:
        return Finding(None, f"cannot read {unknown}", expected, "grant select on the table to the login of `verify`")
    commands = ", ".join(f"`{text}`" for table in tables for text in table.statements)
    # The rows are not moved to the outbox table, because they would replace newer states of their aggregates.
    remedy = (
        f"make every service write to {state.pipeline.source.table} (see its search_path); if the rows are events of "
        f"this pipeline: run {commands}, which keeps the rows; then {resend_steps(state.pipeline)}"
    )
    return Finding(not tables, ", ".join(table.text for table in tables) or expected, expected, remedy)


@RULES.rule(
    "postgres.not-null",
    condition="id, aggregate type, key, event type and time are not null; otherwise rows become dead letters",
    remedy="run `alter table ... alter column ... set not null`",
)
def _not_null(state: DatabaseState) -> Finding:
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    checked_columns = [getattr(state.pipeline.source.columns, key) for key in NOT_NULL_COLUMNS]
    nullable_columns = [name for name in checked_columns if name in state.additional.nullable_columns]
    actual = f"nullable: {', '.join(nullable_columns)}" if nullable_columns else "no column is nullable"
    actions = [sql.SQL("alter column {} set not null").format(sql.Identifier(name)) for name in nullable_columns]
    statement = _alter_table(state, sql.SQL(", ").join(actions))
    return Finding(not nullable_columns, actual, f"not null: {', '.join(checked_columns)}", f"run `{statement}`")


@RULES.rule(
    "postgres.key-not-empty",
    condition="the table rejects rows with an empty key, which would become dead letters",
    remedy="run `alter table ... add check (KEY <> '')`",
    severity=Severity.WARNING,
)
def _key_not_empty(state: DatabaseState) -> Finding:
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    column = state.pipeline.source.columns.aggregate_id
    operand = rf'(?<![\w"])\(?"?{re.escape(column)}"?\)?(?:::text)?'
    pattern = re.compile(rf"{operand} <> ''(::text)?|length\({operand}\) (> 0|>= 1)")
    passed = any(pattern.search(text) and " OR " not in text for text in state.additional.check_constraints)
    statement = _alter_table(state, sql.SQL("add check ({} <> '')").format(sql.Identifier(column)))
    actual = f"{'a' if passed else 'no'} check on {column}"
    return Finding(passed, actual, f"check ({column} <> '')", f"run `{statement}`")


def _alter_table(state: DatabaseState, action: sql.Composable) -> str:
    table = ddl.qualified_name(state.pipeline.source.table)
    return sql.SQL("alter table {} {}").format(table, action).as_string(None)


@RULES.rule(
    "postgres.row-sequence",
    condition="the sequence of the column seq is not behind the newest rows; otherwise commands that compare or resend "
    "states take earlier rows for the newest (sequences are not replicated logically)",
    remedy="run `select setval(...)` with the highest seq",
)
def _row_sequence(state: DatabaseState) -> Finding:
    expected = "a sequence that is not behind the newest rows"
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    repair = state.additional.sequence_repair
    if repair is None:
        return Finding(None, "source.admin cannot read the sequence", expected, "run `outbox doctor`")
    actual = "the sequence is behind the rows" if repair else expected
    return Finding(not repair, actual, expected, f"run `{repair}`")


@RULES.rule(
    "postgres.partition-field",
    condition="the latest rows of a key have one `partition_field` value; otherwise the key moves between partitions",
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
    "postgres.row-security",
    condition="row security does not hide rows from the login with which `verify` compares rows and topics",
    remedy="run `alter role ... bypassrls`, or create a SELECT policy for the login in the environment file",
    severity=Severity.WARNING,
)
def _row_security(state: DatabaseState) -> Finding:
    expected = "no row security that applies to this login"
    if not state.uses_table:
        return Finding(True, NO_TABLE, "messages")
    hooks = state.additional.hooks
    role = (state.environment.source.verifier or state.environment.source.admin).user
    remedy = f"run `alter role {sql.Identifier(role).as_string(None)} bypassrls` as a superuser"
    actual = f"row security applies to {role}" if hooks.hides_rows else expected
    policies = f"; policies: {', '.join(hooks.policies)}" if hooks.policies else ""
    return Finding(not hooks.hides_rows, f"{actual}{policies}", expected, remedy)


@RULES.rule(
    "postgres.clock",
    condition="the database server's clock, which sets the timestamps for retention, agrees with this machine's clock",
    remedy="synchronize the clock of the database server, or of this machine, with an NTP server",
    severity=Severity.WARNING,
)
def _clock(state: DatabaseState) -> Finding:
    skew_s, expected = state.additional.clock_skew_s, f"a difference of {MAX_CLOCK_SKEW_S} s at most"
    actual = f"the database server is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine"
    is_small = abs(skew_s) <= MAX_CLOCK_SKEW_S
    return Finding(is_small, expected if is_small else actual, expected)


@RULES.rule(
    "postgres.prepared-transactions",
    condition="no prepared transaction blocks the slot or its creation; if the slot is two-phase, "
    "max_prepared_transactions is above 0",
    remedy="run COMMIT PREPARED or ROLLBACK PREPARED for the transactions in pg_prepared_xacts",
)
def _prepared(state: DatabaseState) -> Finding:
    usage, limit = state.additional.usage, state.additional.settings["max_prepared_transactions"]
    if state.actual.slot and state.actual.slot.two_phase and not limit:
        remedy = "set max_prepared_transactions to 1 or more, and restart PostgreSQL"
        return Finding(False, "max_prepared_transactions is 0, but the slot is two-phase", "1 or more", remedy)
    ages_s: dict[str, int] = usage["prepared_ages_s"]
    # PostgreSQL creates a logical slot only after every open transaction has ended.
    max_age_s = MAX_PREPARED_AGE_S if state.actual.slot else -1
    blocking_ids = [name for name, age_s in ages_s.items() if age_s > max_age_s]
    actual = f"{len(ages_s)} prepared transactions, maximum age {max(ages_s.values(), default=0)} s"
    statements = [sql.SQL("rollback prepared {}").format(sql.Literal(name)).as_string(None) for name in blocking_ids]
    remedy = f"run {', '.join(f'`{text}`' for text in statements)}, which discards the changes of the transaction"
    expected = f"no prepared transaction older than {MAX_PREPARED_AGE_S} s, and none while the slot is missing"
    return Finding(not blocking_ids, actual, expected, remedy)


@RULES.rule(
    "postgres.free-slots",
    condition="at least one replication slot is free; a second pipeline, a base backup or --recover needs one",
    remedy="drop slots that are not used, or raise max_replication_slots and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_slots(state: DatabaseState) -> Finding:
    return _free_finding(state.additional.usage["slots"], state.additional.settings["max_replication_slots"])


@RULES.rule(
    "postgres.free-wal-senders",
    condition="at least one WAL sender is free; a connector that reconnects needs one",
    remedy="raise max_wal_senders and restart PostgreSQL",
    severity=Severity.WARNING,
)
def _free_senders(state: DatabaseState) -> Finding:
    return _free_finding(state.additional.usage["senders"], state.additional.settings["max_wal_senders"])


def _free_finding(used_count: int, limit: int) -> Finding:
    return Finding(used_count < limit, f"{used_count} of {limit} in use", "at least one free")


@RULES.rule(
    "postgres.idle-slot-timeout",
    condition="PostgreSQL 18 does not invalidate a slot that has been inactive for less than a day",
    remedy="run `alter system set idle_replication_slot_timeout = 0` and `select pg_reload_conf()`; in a managed "
    "service, change the parameter",
    severity=Severity.WARNING,
)
def _idle_slot_timeout(state: DatabaseState) -> Finding:
    timeout_s, expected = state.additional.settings.get("idle_replication_slot_timeout"), f"0, or at least {DAY_S} s"
    if timeout_s is None:
        return Finding(True, "this PostgreSQL version has no idle_replication_slot_timeout", expected)
    return Finding(timeout_s == 0 or timeout_s >= DAY_S, f"{timeout_s} s", expected)
