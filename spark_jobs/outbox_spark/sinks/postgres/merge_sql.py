"""SQL that applies one staged batch to a table with one row per key. Composes statements, executes none."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from outbox_spark.decoding.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN
from outbox_spark.jobs.model import Mode
from outbox_spark.sinks.postgres.statements import TableStatements, assign, comma_separated, identifiers, version

READABLE = SQL("s._reason is null and not s._deleted")
TOMBSTONE = SQL("s._reason is null and s._deleted")


@dataclass(frozen=True)
class MergeStatements:
    """Statements for one batch, of which each record is staged once.

    Per key, at most one staged record is readable (`_reason` is null); the others are for the quarantine.
    """

    tables: TableStatements
    staging: Identifier
    topic_id: str
    is_new_table: bool
    """The table was just created: it has no rows, and its ledger no entries."""
    has_ledger: bool
    """The ledger has entries."""
    has_quarantine: bool
    """The quarantine has entries, so new rows may be stale."""

    def merge_quarantine(self) -> Composed:
        return SQL(
            "insert into {quarantine} (topic_id, {metadata}, {key}, key, schema_id, reason, value) "
            "select {topic_id}, {metadata}, {key}, _key, _schema_id, _reason, _value from {staging} "
            "where _reason is not null on conflict do nothing"
        ).format(
            quarantine=self.tables.quarantine,
            staging=self.staging,
            metadata=identifiers(METADATA_COLUMNS),
            key=Identifier(KEY_COLUMN),
            topic_id=Literal(self.topic_id),
        )

    def merge_tombstones(self) -> Composed:
        """Insert ledger entries for the tombstones that are newer than the row they delete.

        With soft deletes the row itself has the tombstone's version, so entries are only for keys without a row.
        """
        newer = SQL("") if self._soft_deletes else SQL("and {} >= {}").format(version("r"), version("s"))
        unless = SQL("and not exists (select from {} r where r.{key} = s.{key} {})").format(
            self.tables.target, newer, key=Identifier(KEY_COLUMN)
        )
        names = [KEY_COLUMN, *METADATA_COLUMNS]
        return SQL(
            "insert into {ledger} as t ({names}) select {values} from {staging} s where {tombstone} {unless} "
            "on conflict ({key}) do update set {assignments} where {stored} < {excluded}"
        ).format(
            **self._names(),
            names=identifiers(names),
            values=identifiers(names, "s"),
            tombstone=TOMBSTONE,
            unless=SQL("") if self.is_new_table else unless,
            assignments=assign(METADATA_COLUMNS),
        )

    def delete_rows(self) -> Composed:
        """Delete the rows that have a newer tombstone, or mark them as deleted."""
        if not self._soft_deletes:
            return SQL(
                "delete from {target} t using {staging} s "
                "where t.{key} = s.{key} and {tombstone} and {stored} < {staged}"
            ).format(**self._names(), tombstone=TOMBSTONE)
        return SQL(
            "update {target} t set {deleted_at} = s._timestamp, {metadata}, {stale} = {is_stale} "
            "from {staging} s where t.{key} = s.{key} and {tombstone} and {stored} < {staged}"
        ).format(
            **self._names(),
            deleted_at=Identifier(DELETED_AT_COLUMN),
            metadata=comma_separated(SQL("{0} = s.{0}").format(Identifier(name)) for name in METADATA_COLUMNS),
            stale=Identifier(STALE_COLUMN),
            is_stale=self.is_stale(),
            tombstone=TOMBSTONE,
        )

    def merge_rows(self) -> Composed:
        """Upsert the rows that are newer than both the stored row and the key's tombstone.

        The condition after ON CONFLICT ensures that only newer versions are written. The anti-joins make a replay of
        older records three times as fast, without row locks. Rows are sorted by key, so that the index is filled from
        left to right. A new table gets its index afterwards.
        """
        if self.is_new_table:
            return self._insert()
        newer = SQL("and not exists (select from {} r where r.{key} = s.{key} and {} >= {})")
        sources = [self.tables.target, *([self.tables.tombstones] if self.has_ledger else [])]
        anti_joins = [newer.format(t, version("r"), version("s"), key=Identifier(KEY_COLUMN)) for t in sources]
        names = [*(column.name for column in self.tables.columns), *METADATA_COLUMNS, STALE_COLUMN]
        cleared = [*self.tables.extra, *([DELETED_AT_COLUMN] if self._soft_deletes else [])]
        set_null = [SQL("{} = null").format(Identifier(name)) for name in cleared]
        return SQL(
            "{insert} {unless} order by s.{key} on conflict ({key}) do update set {assignments} "
            "where {stored} < {excluded}"
        ).format(
            **self._names(),
            insert=self._insert(),
            unless=SQL(" ").join(anti_joins),
            assignments=comma_separated([assign(names), *set_null]),
        )

    def remove_superseded_tombstones(self) -> Composed:
        """Delete the ledger entries of keys that have a newer row, whose version supersedes the entry."""
        return SQL(
            "delete from {ledger} t using {staging} s where t.{key} = s.{key} and {readable} and {stored} < {staged}"
        ).format(**self._names(), readable=READABLE)

    def flag_stale(self) -> Composed:
        """Flag the rows that are older than a quarantined record of this batch."""
        return SQL(
            "update {target} t set {stale} = true from {staging} s "
            "where t.{key} = s.{key} and s._reason is not null and {stored} < {staged} and not t.{stale}"
        ).format(**self._names(), stale=Identifier(STALE_COLUMN))

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
            READABLE,
        )

    def is_stale(self) -> Composed:
        """Return the condition that a staged row is older than a quarantined record of its key."""
        return (
            self.tables.newer_quarantined("s", self.topic_id)
            if self.has_quarantine
            else SQL("{}").format(Literal(False))
        )

    def _names(self) -> dict[str, Composable]:
        return {
            "target": self.tables.target,
            "ledger": self.tables.tombstones,
            "staging": self.staging,
            "key": Identifier(KEY_COLUMN),
            "stored": version("t"),
            "staged": version("s"),
            "excluded": version("excluded"),
        }
