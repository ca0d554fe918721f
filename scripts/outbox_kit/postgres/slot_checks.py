"""Checks of `outbox verify` on publication and replication slot."""

from __future__ import annotations

from outbox_kit import lsn
from outbox_kit.errors import RECOVER_HINT
from outbox_kit.pipeline import Source
from outbox_kit.postgres.checks import NO_TABLE, DatabaseState
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE
from outbox_kit.rules import Finding, Rules, Severity

MEGABYTE = 2**20
RETAINED_MB_WITHOUT_LIMIT = 10_240
COLUMN_LISTS_SINCE = 150000
RULES = Rules[DatabaseState]()


@RULES.rule(
    "postgres.publication",
    condition="the publication contains only the outbox table, via its root, and no operation that stops the task",
    remedy="alter publication ... set table ..., then set (publish = 'insert', publish_via_partition_root = true)",
)
def _publication(state: DatabaseState) -> Finding:
    source, publication = state.pipeline.source, state.actual.publication
    expected = f"insert of {source.table}, via root"
    if publication is None:
        return Finding(False, f"no publication {source.publication}", expected)
    if not state.uses_table:
        return Finding(True, f"{NO_TABLE}, which need no entry in the publication", "a publication")
    operations = [name for name in ("insert", "update", "delete", "truncate") if publication[f"pub{name}"]]
    root = "via root" if publication["pubviaroot"] else "not via root"
    tables = f"{', '.join(publication['tables'])}, {root}"
    tolerated = _tolerated_operations(source)
    rejected = ", ".join(operation for operation in operations if operation not in tolerated)
    return Finding(f"{rejected} of {tables}" == expected, f"{', '.join(operations)} of {tables}", expected)


def _tolerated_operations(source: Source) -> set[str]:
    """Return the operations other than insert that do not stop the task."""
    updates = {"update"} if source.updated_rows != "fail" else set()
    return updates | ({"delete", "truncate"} if source.deleted_rows != "fail" else set())


@RULES.rule(
    "postgres.publication-filter",
    condition="the publication has no row filter and no column list; excluded data is lost without an error",
    remedy="alter publication ... set table ..., without WHERE and without columns; republish the excluded rows",
)
def _publication_filter(state: DatabaseState) -> Finding:
    expected = "every row, every column"
    actual, published = state.actual, state.additional.published
    if not state.uses_table:
        return Finding(True, f"{NO_TABLE}, to which no filter applies", expected)
    if actual.publication is None or published is None:
        if actual.publication is not None and actual.version < COLUMN_LISTS_SINCE:
            return Finding(True, expected, expected)
        return Finding(None, "the table is not in the publication", expected)
    source = state.pipeline.source
    fields = {aggregate.partition_field for aggregate in state.pipeline.aggregates.values()} - {None}
    names = {*source.columns.model_dump().values(), *source.additional_columns, *fields}
    excluded = sorted(names & set(actual.columns) - set(published))
    problems = ["some rows only"] if actual.publication["filtered"] else []
    problems += [f"without {', '.join(excluded)}"] if excluded else []
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "postgres.publication-older-than-slot",
    condition="the publication was not recreated after the slot; rows written while it did not exist would be lost",
    remedy="recreate the slot, then republish the rows that were written while the publication did not exist",
)
def _publication_identity(state: DatabaseState) -> Finding:
    recorded, publication = state.recorded, state.actual.publication
    expected = f"oid {recorded.publication_oid if recorded else '?'}, the oid in the lock file"
    if publication is None:
        return Finding(None, "no publication", expected)
    passed = recorded is not None and publication["oid"] == recorded.publication_oid
    return Finding(passed, f"oid {publication['oid']}", expected)


@RULES.rule(
    "postgres.slot",
    condition="the slot exists, decodes with pgoutput, and belongs to this database",
    remedy=f"the connector never receives the rows after the last confirmed position: {RECOVER_HINT}",
)
def _slot(state: DatabaseState) -> Finding:
    expected = f"pgoutput in database {state.actual.database}"
    slot = state.actual.slot
    if slot is None:
        return Finding(False, f"no slot {state.pipeline.source.slot}", expected)
    actual = f"{slot.plugin} in database {slot.database}"
    return Finding(actual == expected, actual, expected)


@RULES.rule(
    "postgres.slot-identity",
    condition="the slot has the name in the lock file, and has not moved back behind its first LSN",
    remedy=f"the slot was recreated, or the server restored: {RECOVER_HINT}",
)
def _slot_identity(state: DatabaseState) -> Finding:
    slot, recorded = state.actual.slot, state.recorded
    if slot is None or slot.confirmed_flush is None or recorded is None:
        return Finding(None, "no slot in the database or in the lock file", "the slot of the lock file")
    passed = slot.name == recorded.slot and slot.confirmed_flush >= lsn.parse(recorded.slot_lsn)
    actual = f"{slot.name} at {lsn.format_lsn(slot.confirmed_flush)}"
    return Finding(passed, actual, f"{recorded.slot} at {recorded.slot_lsn} or later")


@RULES.rule(
    "postgres.slot-active",
    condition="the slot is active and read by the connector's role; if another client reads it, rows are lost",
    remedy="if the slot is not active, start the connector; if another role reads the slot, stop that client",
)
def _slot_active(state: DatabaseState) -> Finding:
    slot, expected = state.actual.slot, f"read by {state.environment.source.connector.user}"
    if slot is None:
        return Finding(None, "no slot", expected)
    if not slot.active and state.environment.connector.state == "stopped":
        return Finding(True, "not active: connector.state is stopped", expected)
    actual = f"read by {slot.reader or 'an unknown role'}" if slot.active else "not active"
    return Finding(actual == expected, actual, expected)


@RULES.rule(
    "postgres.slot-wal",
    condition="the WAL that the slot needs still exists",
    remedy=f"if `unreserved`, the connector must catch up immediately; if `lost`, drop the slot, then {RECOVER_HINT}",
)
def _slot_wal(state: DatabaseState) -> Finding:
    slot, expected = state.actual.slot, "reserved or extended"
    if slot is None:
        return Finding(None, "no slot", expected)
    reason = slot.invalidation_reason
    actual = f"{slot.wal_status} ({reason})" if reason else str(slot.wal_status)
    return Finding(slot.wal_status in ("reserved", "extended") and not reason, actual, expected)


@RULES.rule(
    "postgres.slot-retained",
    condition="the slot retains less than half of `max_slot_wal_keep_size`; the slot is lost when it reaches this size",
    remedy="let the connector catch up, end old transactions (pg_stat_activity), or raise max_slot_wal_keep_size",
)
def _slot_retained(state: DatabaseState) -> Finding:
    limit = state.additional.settings["max_slot_wal_keep_size"]
    maximum = (limit if limit >= 0 else RETAINED_MB_WITHOUT_LIMIT) * MEGABYTE // 2
    origin = f"limit {limit} MB" if limit >= 0 else "the server sets no limit"
    retained, expected = state.actual.retained_bytes, f"{maximum // MEGABYTE} MB at most ({origin})"
    if retained is None:
        return Finding(None, "no slot, or its WAL is lost", expected)
    return Finding(retained <= maximum, f"{retained // MEGABYTE} MB retained", expected)


@RULES.rule(
    "postgres.slot-failover",
    condition="the slot is a failover slot, so that standbys can have a copy (PostgreSQL 17 and later)",
    remedy="stop the connector and set FAILOVER with ALTER_REPLICATION_SLOT (replication protocol)",
    severity=Severity.WARNING,
)
def _slot_failover(state: DatabaseState) -> Finding:
    slot = state.actual.slot
    if state.actual.version < FAILOVER_SLOTS_SINCE:
        return Finding(True, f"PostgreSQL {state.actual.version // 10_000} has no failover slots", "failover")
    if slot is None:
        return Finding(None, "no slot", "failover")
    return Finding(bool(slot.failover), "failover" if slot.failover else "no failover", "failover")
