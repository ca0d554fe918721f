"""Check the publication and the replication slot for `outbox verify`."""

from __future__ import annotations

import shlex

from psycopg import sql
from psycopg.conninfo import make_conninfo

from outbox_events.contract import lsn
from outbox_kit.pipeline import Pipeline, Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.checks import NO_TABLE, DatabaseState
from outbox_kit.postgres.client import Row
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE
from outbox_kit.results.checks import Finding, Rules, Severity
from outbox_kit.results.repair_commands import (
    APPLY_RECOVER_HINT,
    RECOVER_HINT,
    RESEND_HINT,
    recover_steps,
    resend_steps,
)

MEGABYTE = 2**20
RETAINED_MB_WITHOUT_LIMIT = 10_240
MIN_LIMIT_MB = 256
"""Limit below which a slot can be lost while the connector restarts, because a checkpoint removes WAL segments."""
COLUMN_LISTS_SINCE = 150000
GENERATED_COLUMNS_SINCE = 180000
RULES = Rules[DatabaseState]()


@RULES.rule(
    "postgres.publication",
    condition="the publication has only the outbox table, publishes via its root, and omits operations that stop tasks",
    remedy=f"if the publication is missing, {RECOVER_HINT}; otherwise run `alter publication ... set table ...` and "
    "`alter publication ... set (publish = 'insert', publish_via_partition_root = true)`",
)
def _publication(state: DatabaseState) -> Finding:
    source, publication = state.pipeline.source, state.actual.publication
    expected = f"insert of {source.table}, with publish_via_partition_root = true"
    if publication is None:
        return Finding(False, f"no publication {source.publication}", expected, RECOVER_HINT)
    if not state.uses_table:
        return Finding(True, f"{NO_TABLE}, which need no entry in the publication", "a publication")
    operations = [name for name in ("insert", "update", "delete", "truncate") if publication[f"pub{name}"]]
    via_root, tables = bool(publication["pubviaroot"]), publication["tables"]
    checked_operations = [name for name in operations if name not in _tolerated_operations(source)]
    passed = checked_operations == ["insert"] and tables == [source.table] and via_root
    option = f"publish_via_partition_root = {str(via_root).lower()}"
    actual, omits_rows = f"{', '.join(operations)} of {', '.join(tables)}, with {option}", source.table not in tables
    if (publication["puballtables"] or not state.actual.columns) and not _is_recorded(state, publication):
        drop = ddl.replace_publication(source)[0].as_string(None)
        remedy = f"run `{drop}`; then {RECOVER_HINT}"
        return Finding(passed, actual, expected, remedy if state.actual.columns else _replacement_remedy(state))
    if publication["puballtables"] or not state.actual.columns:
        return Finding(passed, actual, expected, "run `outbox apply`")
    return Finding(
        passed, actual, expected, _alter_remedy(state.pipeline, omits_rows=omits_rows or "insert" not in operations)
    )


def _alter_remedy(pipeline: Pipeline, *, omits_rows: bool) -> str:
    """Return the statements that restore the publication, and commands that resend the rows it omitted."""
    statements = [text.as_string(None) for text in ddl.alter_publication(pipeline.source)]
    commands = " and ".join(f"`{text}`" for text in statements)
    return f"run {commands}" + (f"; then {resend_steps(pipeline)}" if omits_rows else "")


def _tolerated_operations(source: Source) -> set[str]:
    """Return the operations that the task skips because of source.updated_rows and source.deleted_rows."""
    skipped_operations = {"update"} if source.updated_rows != "fail" else set()
    return skipped_operations | ({"delete", "truncate"} if source.deleted_rows != "fail" else set())


@RULES.rule(
    "postgres.publication-filter",
    condition="the publication has no row filter and no column list, and no column of the contract is generated: "
    "data that the publication excludes would be lost without an error",
    remedy="run `alter publication PUBLICATION set table TABLE`, without WHERE and without columns, then "
    f"{RESEND_HINT}",
)
def _publication_filter(state: DatabaseState) -> Finding:
    expected = "every row, every column"
    actual, published = state.actual, state.additional.published_columns
    if not state.uses_table:
        return Finding(True, f"{NO_TABLE}, to which no filter applies", expected)
    required_columns = state.pipeline.outbox_columns
    # Before PostgreSQL 18, publications do not include generated columns, although PostgreSQL 15 lists them.
    published_columns = set(published or ()) if actual.version >= GENERATED_COLUMNS_SINCE else set()
    unpublished_columns = required_columns & set(state.additional.generated_columns) - published_columns
    if unpublished_columns:
        return _generated_columns(state, sorted(unpublished_columns), expected)
    if actual.publication is None or published is None:
        if actual.publication is not None and actual.version < COLUMN_LISTS_SINCE:
            return Finding(True, expected, expected)
        return Finding(None, "no publication, or the table is not in the publication", expected)
    excluded_columns = sorted(required_columns & set(actual.columns) - set(published))
    problems = ["a row filter"] if actual.publication["filtered"] else []
    problems += [f"a column list without {', '.join(excluded_columns)}"] if excluded_columns else []
    remedy = _alter_remedy(state.pipeline, omits_rows=not excluded_columns)
    if excluded_columns:
        # The connector fails at rows without these columns, and rows that are already in the WAL remain without them.
        remedy = f"{remedy}; then {_replacement_remedy(state)}"
    return Finding(not problems, "; ".join(problems) or expected, expected, remedy)


def _generated_columns(state: DatabaseState, names: list[str], expected: str) -> Finding:
    """Return the finding for columns of the contract that are not published because they are generated."""
    expressions, source = state.additional.generated_columns, state.pipeline.source
    actual = ", ".join(f"{name} is generated always as ({expressions[name]}), which is not published" for name in names)
    options = {name: key for key, name in source.columns.model_dump().items()}
    originals = {options.get(name, ""): expressions[name].strip('"') for name in names}
    if "" not in originals and set(originals.values()) <= set(state.actual.columns):
        # The rows in the WAL contain the original columns, so no row is lost.
        settings = ", ".join(f"source.columns.{option}: {original}" for option, original in originals.items())
        return Finding(False, actual, expected, f"set {settings} in the pipeline file, then run `outbox apply`")
    actions = [sql.SQL("alter column {} drop expression").format(sql.Identifier(name)) for name in names]
    table, joined_actions = ddl.qualified_name(source.table), sql.SQL(", ").join(actions)
    statement = sql.SQL("alter table {} {}").format(table, joined_actions).as_string(None)
    replacement = _replacement_remedy(state)
    remedy = f"run `{statement}`, and make the service write {', '.join(names)}; then {replacement}"
    return Finding(False, actual, expected, remedy)


@RULES.rule(
    "postgres.publication-older-than-slot",
    condition="the publication was not recreated after the slot; rows written while it was missing would be lost",
    remedy=RECOVER_HINT,
)
def _publication_identity(state: DatabaseState) -> Finding:
    locked_source, publication = state.locked_source, state.actual.publication
    expected = f"oid {locked_source.publication_oid}, the oid in the lock file"
    if publication is None:
        return Finding(None, "no publication", expected)
    return Finding(_is_recorded(state, publication), f"oid {publication['oid']}", expected)


def _is_recorded(state: DatabaseState, publication: Row) -> bool:
    """Return whether the publication is the one in the lock file, and was not recreated by another client."""
    return bool(publication["oid"] == state.locked_source.publication_oid)


def _replacement_remedy(state: DatabaseState) -> str:
    """Return the commands that replace the slot and send its undelivered rows; without a table, the states."""
    slot = sql.Literal(state.pipeline.source.slot)
    steps = f"run `outbox stop`, then `{sql.SQL('select pg_drop_replication_slot({})').format(slot).as_string(None)}`"
    if state.actual.columns:
        return f"{steps}; then {RECOVER_HINT}"
    return (
        f"{steps}, which discards the rows that the slot has not delivered, including those that are written before "
        f"the new slot exists; then {recover_steps(state.pipeline)}"
    )


@RULES.rule(
    "postgres.slot",
    condition="the slot exists, decodes with pgoutput, and belongs to this database",
    remedy=f"if the slot is missing, {RECOVER_HINT}; if it belongs to another connector, change source.slot",
)
def _slot(state: DatabaseState) -> Finding:
    expected = f"pgoutput in database {state.actual.database}"
    slot = state.actual.slot
    if slot is None:
        return Finding(False, f"no slot {state.pipeline.source.slot}", expected, RECOVER_HINT)
    actual = f"{slot.plugin} in database {slot.database}"
    remedy = f"if no other connector needs this slot, {_replacement_remedy(state)}"
    return Finding(actual == expected, actual, expected, remedy)


@RULES.rule(
    "postgres.slot-identity",
    condition="the slot has the name in the lock file, and its confirmed LSN is not below the LSN in the lock file",
    remedy=f"the slot was recreated, or the server was restored: {APPLY_RECOVER_HINT}",
)
def _slot_identity(state: DatabaseState) -> Finding:
    slot, locked_source = state.actual.slot, state.locked_source
    if slot is None or slot.confirmed_flush is None:
        return Finding(None, "no slot in the database", "the slot in the lock file")
    passed = slot.name == locked_source.slot and slot.confirmed_flush >= lsn.parse(locked_source.slot_lsn)
    actual = f"{slot.name} at {lsn.format_lsn(slot.confirmed_flush)}"
    remedy = f"the slot was recreated, or the server was restored: {recover_steps(state.pipeline)}"
    return Finding(passed, actual, f"{locked_source.slot} at {locked_source.slot_lsn} or later", remedy)


@RULES.rule(
    "postgres.slot-active",
    condition="the slot is active and read by the connector's role; if another client reads it, rows are lost",
    remedy="run `outbox apply`, or `outbox restart` if the connector has failed; stop any other client of the slot",
)
def _slot_active(state: DatabaseState) -> Finding:
    slot, expected = state.actual.slot, f"read by {state.environment.source.connector.user}"
    if slot is None:
        return Finding(None, "no slot", expected)
    if not slot.active and state.environment.connector.state == "stopped":
        return Finding(True, "not active: connector.state is stopped", expected)
    actual = f"read by {slot.reader or 'an unknown role'}" if slot.active else "not active"
    end_session = f"stop the client, run `select pg_terminate_backend({slot.active_pid})`, then `outbox apply`"
    return Finding(actual == expected, actual, expected, end_session if slot.active else "")


@RULES.rule(
    "postgres.slot-wal",
    condition="the WAL that the slot needs still exists",
    remedy=f"if `unreserved`, let the connector catch up immediately; if `lost`, {RECOVER_HINT}",
)
def _slot_wal(state: DatabaseState) -> Finding:
    slot, expected = state.actual.slot, "reserved or extended"
    if slot is None:
        return Finding(None, "no slot", expected)
    reason = slot.invalidation_reason
    actual = f"{slot.wal_status} ({reason})" if reason else str(slot.wal_status)
    remedy = "" if slot.wal_status == "unreserved" else RECOVER_HINT
    return Finding(slot.wal_status in ("reserved", "extended") and not reason, actual, expected, remedy)


@RULES.rule(
    "postgres.slot-retained",
    condition="`max_slot_wal_keep_size` is at least 256 MB, and the WAL that the slot retains is below half of it; a "
    "slot that exceeds it is lost",
    remedy="let the connector catch up, end old transactions (pg_stat_activity), or raise max_slot_wal_keep_size",
)
def _slot_retained(state: DatabaseState) -> Finding:
    limit_mb = state.additional.settings["max_slot_wal_keep_size"]
    maximum_mb = (limit_mb if limit_mb >= 0 else RETAINED_MB_WITHOUT_LIMIT) / 2
    limit_text = f"max_slot_wal_keep_size is {limit_mb} MB" if limit_mb >= 0 else "max_slot_wal_keep_size sets no limit"
    if 0 <= limit_mb < MIN_LIMIT_MB:
        remedy = f"run `alter system set max_slot_wal_keep_size = '{RETAINED_MB_WITHOUT_LIMIT}MB'`, then reload"
        return Finding(False, limit_text, f"at least {MIN_LIMIT_MB} MB", remedy)
    retained_bytes, expected = state.actual.retained_bytes, f"{int(maximum_mb)} MB at most ({limit_text})"
    if retained_bytes is None:
        return Finding(None, "no slot, or its WAL is lost", expected)
    return Finding(retained_bytes <= maximum_mb * MEGABYTE, f"{retained_bytes // MEGABYTE} MB retained", expected)


@RULES.rule(
    "postgres.slot-failover",
    condition="the slot is a failover slot, which standbys can copy (PostgreSQL 17 and later)",
    remedy="run `outbox stop`, the replication command ALTER_REPLICATION_SLOT SLOT (FAILOVER), and `outbox resume`",
    severity=Severity.WARNING,
)
def _slot_failover(state: DatabaseState) -> Finding:
    slot = state.actual.slot
    if state.actual.version < FAILOVER_SLOTS_SINCE:
        return Finding(True, f"PostgreSQL {state.actual.version // 10_000} has no failover slots", "a failover slot")
    if slot is None:
        return Finding(None, "no slot", "a failover slot")
    server, name = state.environment.source, sql.Identifier(state.pipeline.source.slot).as_string(None)
    login = make_conninfo(
        host=server.host, port=server.port, dbname=server.database, user=server.admin.user, replication="database"
    )
    command = shlex.join(["psql", login, "-c", f"ALTER_REPLICATION_SLOT {name} (FAILOVER)"])
    remedy = f"run `outbox stop`, then `{command}`, then `outbox resume`"
    seen = f"{'a' if slot.failover else 'not a'} failover slot"
    return Finding(bool(slot.failover), seen, "a failover slot", remedy)
