"""Compose (but do not execute) the SQL that applies one staged batch to a table with one row per key."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    STALE_COLUMN,
    VALID_FROM_COLUMN,
)
from outbox_spark.jobs.model import Mode
from outbox_spark.sinks.postgres.statements import TableStatements, comma_separated, identifiers, set_excluded, version

IS_LIVE_RECORD = SQL("s.__outbox_reason is null and not s.__outbox_deleted")
IS_TOMBSTONE = SQL("s.__outbox_reason is null and s.__outbox_deleted")


@dataclass(frozen=True)
class MergeStatements:
    """Statements for one batch. Each record of the batch is staged once.

    At most one staged record per key (in history mode, per version) has no reason. The other records are quarantined.
    """

    tables: TableStatements
    staging: Identifier
    topic_id: str
    is_new_table: bool = False
    """Whether the table was just created, so that the table and the ledger are empty."""
    has_ledger: bool = False
    """Whether the ledger has entries."""
    has_quarantine: bool = False
    """Whether the quarantine has records, so that new rows may be stale."""
    may_repeat: bool = True
    """Whether many of the rows may already be in the table."""

    def merge_quarantine(self) -> Composed:
        return SQL(
            "insert into {quarantine} (topic_id, {metadata}, {key}, key, schema_id, reason, value, schema_header) "
            "select {topic_id}, {metadata}, {key}, __outbox_key, __outbox_schema_id, __outbox_reason, __outbox_value, "
            "__outbox_schema_header from {staging} where __outbox_reason is not null on conflict do nothing"
        ).format(
            **self._sql_names(),
            quarantine=self.tables.quarantine,
            metadata=identifiers(METADATA_COLUMNS),
            topic_id=Literal(self.topic_id),
        )

    def merge_tombstones(self) -> Composed:
        """Write ledger entries for the tombstones, except for tombstones that are not newer than the row of their key.

        With soft deletes, the row itself gets the tombstone's version, so only keys without a row get an entry.
        """
        version_condition = SQL("") if self._soft_deletes else SQL("and {} >= {}").format(version("r"), version("s"))
        anti_join = SQL("and not exists (select from {} r where r.{key} = s.{key} {})").format(
            self.tables.target, version_condition, key=Identifier(KEY_COLUMN)
        )
        names = [KEY_COLUMN, *METADATA_COLUMNS]
        return SQL(
            "insert into {ledger} as t ({names}) select {values} from {staging} s where {tombstone} {anti_join} "
            "on conflict ({key}) do update set {assignments} where {stored} < {excluded}"
        ).format(
            **self._sql_names(),
            names=identifiers(names),
            values=identifiers(names, "s"),
            tombstone=IS_TOMBSTONE,
            anti_join=SQL("") if self.is_new_table else anti_join,
            assignments=set_excluded(METADATA_COLUMNS),
        )

    def delete_rows(self) -> Composed:
        """Delete the rows that have a newer staged tombstone. With soft deletes, mark these rows as deleted."""
        if not self._soft_deletes:
            return SQL(
                "delete from {target} t using {staging} s "
                "where t.{key} = s.{key} and {tombstone} and {stored} < {staged}"
            ).format(**self._sql_names(), tombstone=IS_TOMBSTONE)
        return SQL(
            "update {target} t set {deleted_at} = s._timestamp, {metadata}, {stale} = {is_stale} "
            "from {staging} s where t.{key} = s.{key} and {tombstone} and {stored} < {staged}"
        ).format(
            **self._sql_names(),
            deleted_at=Identifier(DELETED_AT_COLUMN),
            metadata=comma_separated(SQL("{0} = s.{0}").format(Identifier(name)) for name in METADATA_COLUMNS),
            stale=Identifier(STALE_COLUMN),
            is_stale=self.is_stale(),
            tombstone=IS_TOMBSTONE,
        )

    def merge_rows(self) -> Composed:
        """Upsert the staged rows that are newer than the stored row and the ledger entry of their key.

        The condition after ON CONFLICT ensures that only newer versions are written. The anti-join with the table makes
        a replay of older records three times as fast, and avoids row locks. Ordering by key fills the index from left
        to right. A new table has no index yet.
        """
        if self.is_new_table:
            return self._insert()
        anti_join = SQL("and not exists (select from {} r where r.{key} = s.{key} and {} >= {})")
        tables = [self.tables.target] if self.may_repeat else []
        tables += [self.tables.tombstones] if self.has_ledger else []
        anti_joins = [anti_join.format(name, version("r"), version("s"), key=Identifier(KEY_COLUMN)) for name in tables]
        names = [*(column.name for column in self.tables.columns), *METADATA_COLUMNS, STALE_COLUMN]
        obsolete_names = [*self.tables.removed_columns, *([DELETED_AT_COLUMN] if self._soft_deletes else [])]
        null_assignments = [SQL("{} = null").format(Identifier(name)) for name in obsolete_names]
        return SQL(
            "{insert} {anti_joins} order by s.{key} on conflict ({key}) do update set {assignments} "
            "where {stored} < {excluded}"
        ).format(
            **self._sql_names(),
            insert=self._insert(),
            anti_joins=SQL(" ").join(anti_joins),
            assignments=comma_separated([set_excluded(names), *null_assignments]),
        )

    def remove_superseded_tombstones(self) -> Composed:
        """Delete the ledger entries that are older than a staged row of the same key."""
        return SQL(
            "delete from {ledger} t using {staging} s where t.{key} = s.{key} and {live} and {stored} < {staged}"
        ).format(**self._sql_names(), live=IS_LIVE_RECORD)

    def flag_stale(self) -> Composed:
        """Flag rows as stale if they are older than a quarantined record of the same key in this batch."""
        return SQL(
            "update {target} t set {stale} = true from {staging} s "
            "where t.{key} = s.{key} and s.__outbox_reason is not null and {stored} < {staged} and not t.{stale}"
        ).format(**self._sql_names(), stale=Identifier(STALE_COLUMN))

    def rewrite_rows(self) -> list[Composed]:
        """Replace the values of rows that have exactly the version of a staged row (see Batch.rewrites).

        The second statement is for quarantined records and tombstones, which correct only the state of the row.
        """
        values = [SQL("{0} = s.{0}").format(Identifier(column.name)) for column in self.tables.columns]
        condition = SQL("t.{key} = s.{key} and {stored} = {staged}").format(**self._sql_names())
        template = SQL("update {} t set {} from {} s where {} and {}({})")
        state = self._state_assignments()
        return [
            template.format(
                self.tables.target, comma_separated(assignments), self.staging, condition, negation, IS_LIVE_RECORD
            )
            for assignments, negation in (([*values, *state], SQL("")), (state, SQL("not ")))
        ]

    def _state_assignments(self) -> list[Composed]:
        assignments = [
            SQL("_timestamp = s._timestamp").format(),
            SQL("{} = {}").format(Identifier(STALE_COLUMN), self.is_stale()),
        ]
        if self.tables.mode is Mode.HISTORY:
            assignments.append(SQL("{} = s._timestamp").format(Identifier(VALID_FROM_COLUMN)))
        if self._soft_deletes:
            template = SQL(
                "{0} = case when s.__outbox_reason is not null then t.{0} when s.__outbox_deleted then s._timestamp end"
            )
            assignments.append(template.format(Identifier(DELETED_AT_COLUMN)))
        return assignments

    @property
    def _soft_deletes(self) -> bool:
        return self.tables.mode is Mode.SOFT_DELETE

    def _insert(self) -> Composed:
        names = [KEY_COLUMN, *(column.name for column in self.tables.columns), *METADATA_COLUMNS]
        return SQL("insert into {} as t ({}) select {}, {} from {} s where {}").format(
            self.tables.target,
            identifiers([*names, STALE_COLUMN]),
            identifiers(names, "s"),
            self.is_stale(),
            self.staging,
            IS_LIVE_RECORD,
        )

    def is_stale(self) -> Composed:
        """Return the condition that a staged row is older than a quarantined record of its key."""
        if not self.has_quarantine:
            return SQL("false").format()
        return self.tables.has_newer_quarantined("s", self.topic_id)

    def _sql_names(self) -> dict[str, Composable]:
        return {
            "target": self.tables.target,
            "ledger": self.tables.tombstones,
            "staging": self.staging,
            "key": Identifier(KEY_COLUMN),
            "stored": version("t"),
            "staged": version("s"),
            "excluded": version("excluded"),
        }
