"""What `outbox verify` checks of publication and slot, the two objects that feed the connector."""

from __future__ import annotations

from outbox_kit.errors import RECOVER
from outbox_kit.pipeline import Source
from outbox_kit.postgres import client
from outbox_kit.postgres.checks import NO_TABLE, Look
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE
from outbox_kit.rules import Finding, Rule, Severity, rule

MEGABYTE = 2**20
# Where the server sets no limit, this much is enough to look at.
RETAINED_MB = 10_240
RULES: list[Rule[Look]] = []


@rule(
    RULES,
    "postgres.publication",
    guards="inserts of exactly the outbox table, via the root; else what `updated_rows`, `deleted_rows` allow",
    remedy="alter publication: the table, publish = 'insert', publish_via_partition_root = true",
)
def _publication(look: Look) -> Finding:
    expected = f"insert of {look.pipeline.source.table}, via root"
    publication = look.actual.publication
    if publication is None:
        return Finding(False, f"no publication {look.pipeline.source.publication}", expected)
    if not look.has_table:
        return Finding(True, f"{NO_TABLE}, which pass any publication", "a publication")
    operations = [name for name in ("insert", "update", "delete", "truncate") if publication[f"pub{name}"]]
    root = "via root" if publication["pubviaroot"] else "not via root"
    where = f"{', '.join(publication['tables'])}, {root}"
    passing = _passing(look.pipeline.source)
    stopping = ", ".join(each for each in operations if each not in passing)
    return Finding(f"{stopping} of {where}" == expected, f"{', '.join(operations)} of {where}", expected)


def _passing(source: Source) -> set[str]:
    """Operations beside insert that do not stop the task."""
    updates = {"update"} if source.updated_rows != "fail" else set()
    return updates | ({"delete", "truncate"} if source.deleted_rows != "fail" else set())


@rule(
    RULES,
    "postgres.publication-filter",
    guards="no row filter and no column list: what they leave out is lost in silence",
    remedy="alter publication ... set table ..., without where and without columns; republish what was left out",
)
def _publication_filter(look: Look) -> Finding:
    expected = "every row, every column"
    if not look.has_table:
        return Finding(True, f"{NO_TABLE}, which no filter concerns", expected)
    if look.actual.publication is None or look.details.published is None:
        if look.actual.publication is not None and look.actual.version < 150000:  # noqa: PLR2004 - filters came then
            return Finding(True, expected, expected)
        return Finding(None, "the table is not in the publication", expected)
    source = look.pipeline.source
    fields = {entry.partition_field for entry in look.pipeline.aggregates.values() if entry.partition_field}
    names = {*source.columns.model_dump().values(), *source.further_columns, *fields}
    left_out = sorted(names & set(look.actual.columns) - set(look.details.published))
    problems = ["some rows only"] if look.actual.publication["filtered"] else []
    problems += [f"without {', '.join(left_out)}"] if left_out else []
    return Finding(not problems, "; ".join(problems) or expected, expected)


@rule(
    RULES,
    "postgres.publication-older-than-slot",
    guards="the publication is the one of when the slot was made: rows between a slot and a younger one are lost",
    remedy="the publication was made anew after the slot: rows in between are gone; recreate the slot, republish",
)
def _publication_identity(look: Look) -> Finding:
    expected = f"oid {look.locked.publication_oid if look.locked else '?'}, as when the slot was made"
    if look.actual.publication is None:
        return Finding(None, "no publication", expected)
    seen = f"oid {look.actual.publication['oid']}"
    return Finding(look.locked is not None and expected.startswith(f"{seen},"), seen, expected)


@rule(
    RULES,
    "postgres.slot",
    guards="the slot exists, decodes with pgoutput, and belongs to this database",
    remedy=f"rows since its last position are lost to the connector: {RECOVER}",
)
def _slot(look: Look) -> Finding:
    expected = f"pgoutput in database {look.actual.database}"
    slot = look.actual.slot
    if slot is None:
        return Finding(False, f"no slot {look.pipeline.source.slot}", expected)
    seen = f"{slot['plugin']} in database {slot['database']}"
    return Finding(seen == expected, seen, expected)


@rule(
    RULES,
    "postgres.slot-identity",
    guards="the slot is the recorded one, and has not gone back behind where it was made",
    remedy=f"the slot was made anew, or the server restored: {RECOVER}",
)
def _slot_identity(look: Look) -> Finding:
    slot, details, locked = look.actual.slot, look.details.slot, look.locked
    if slot is None or details is None or details["confirmed"] is None or locked is None:
        return Finding(None, "no slot, or none recorded", "the recorded slot")
    made = int(locked.slot_lsn.split("/")[0], 16) * 2**32 + int(locked.slot_lsn.split("/")[1], 16)
    good = slot["slot_name"] == locked.slot and details["confirmed"] >= made
    return Finding(
        good, f"{slot['slot_name']} at {slot['confirmed_flush_lsn']}", f"{locked.slot} at {locked.slot_lsn} or later"
    )


@rule(
    RULES,
    "postgres.slot-active",
    guards="somebody reads the slot, and it is the connector's role: two readers in turn lose rows",
    remedy="nobody: is the connector running? another role: which other connector uses this slot?",
)
def _slot_active(look: Look) -> Finding:
    slot, details = look.actual.slot, look.details.slot
    expected = f"read by {look.environment.source.connector.user}"
    if slot is None or details is None:
        return Finding(None, "no slot", expected)
    if not slot["active"] and look.environment.connector.state == "stopped":
        return Finding(True, "read by nobody: connector.state is stopped", expected)
    seen = f"read by {details['reader'] or 'an unknown role'}" if slot["active"] else "read by nobody"
    return Finding(seen == expected, seen, expected)


@rule(
    RULES,
    "postgres.slot-wal",
    guards="the WAL that the slot needs is still there",
    remedy=f"lost: drop the slot by hand, then {RECOVER}; unreserved: let the connector catch up at once",
)
def _slot_wal(look: Look) -> Finding:
    slot, expected = look.actual.slot, "reserved or extended"
    if slot is None:
        return Finding(None, "no slot", expected)
    reason = look.details.slot and look.details.slot["invalid"]
    seen = f"{slot['wal_status']} ({reason})" if reason else str(slot["wal_status"])
    return Finding(slot["wal_status"] in ("reserved", "extended") and not reason, seen, expected)


@rule(
    RULES,
    "postgres.slot-retained",
    guards="the WAL that the slot holds back is under half of `max_slot_wal_keep_size`, beyond which the slot is lost",
    remedy="let the connector catch up, end old transactions (pg_stat_activity), or raise max_slot_wal_keep_size",
)
def _slot_retained(look: Look) -> Finding:
    limit = look.details.settings["max_slot_wal_keep_size"]
    half = (limit if limit >= 0 else RETAINED_MB) * MEGABYTE // 2
    words = f"limit {limit} MB" if limit >= 0 else "the server sets no limit"
    slot, expected = look.actual.slot, f"{half // MEGABYTE} MB at most ({words})"
    if slot is None or slot["retained_bytes"] is None:
        return Finding(None, "no slot, or its WAL is lost", expected)
    return Finding(slot["retained_bytes"] <= half, f"{slot['retained_bytes'] // MEGABYTE} MB retained", expected)


@rule(
    RULES,
    "postgres.slot-failover",
    guards="a standby gets the slot too (PostgreSQL 17 and later)",
    remedy="made without the flag: alter it through the replication protocol while the connector is stopped",
    severity=Severity.WARNING,
)
def _slot_failover(look: Look) -> Finding:
    slot: client.Row | None = look.details.slot
    if look.actual.version < FAILOVER_SLOTS_SINCE:
        return Finding(True, f"PostgreSQL {look.actual.version // 10_000} has none", "failover")
    if slot is None:
        return Finding(None, "no slot", "failover")
    return Finding(bool(slot["failover"]), "failover" if slot["failover"] else "no failover", "failover")
