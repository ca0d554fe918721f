"""SQL that applies one staged batch to a history table, with a row per version. Composes statements, executes none.

Versions are those of the source: a record that a connector sends again, at another offset, is not a new version.
Intervals extend from one version to the next version or deletion, whatever the order of their arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.postgres.merge_sql import READABLE, TOMBSTONE, MergeStatements
from outbox_spark.sinks.postgres.statements import identifiers

_IDENTITY = [KEY_COLUMN, *VERSION_COLUMNS]
# "offset 0" makes the planner use an index lookup per staged row. Otherwise it scans a table that was just filled,
# because the table has no statistics about versions per key.
_IS_STORED = SQL(
    "exists (select from {stored} r where r.{key} = s.{key} and r._sequence = s._sequence and (s._sequence <> '' "
    "or (r._partition_epoch, r._offset) = (s._partition_epoch, s._offset)) offset 0)"
)
# All versions and deletions of the keys in the batch, each with the end of its interval.
_ENDS = SQL(
    "with keys as (select distinct s.{key} from {staging} s where s._reason is null), "
    "known as ("
    "select {stored}, h._timestamp, {valid_to} as was, 'target' as source from keys k "
    "cross join lateral (select * from {target} t where t.{key} = k.{key} offset 0) h "
    "union all select {stored}, h._timestamp, null, 'ledger' from keys k "
    "cross join lateral (select * from {ledger} l where l.{key} = k.{key} offset 0) h "
    "union all select {staged}, s._timestamp, null, 'staged' from {staging} s where {readable}), "
    "ends as (select *, lead(_timestamp) over w as ends, lead(source) over w = 'ledger' as deleted "
    "from known window w as (partition by {key} order by {version}))"
)


@dataclass(frozen=True)
class HistoryMergeStatements(MergeStatements):
    """Statements for one batch: `remove_known` first, then `merge_tombstones`, `close_rows`, `merge_rows`."""

    def remove_known(self) -> list[Composed]:
        """Delete the staged rows that are in the table, and the staged tombstones that are in its ledger."""
        return [
            SQL("delete from {} s where {} and {}").format(
                self.staging, condition, _IS_STORED.format(stored=table, key=Identifier(KEY_COLUMN))
            )
            for table, condition in ((self.tables.target, READABLE), (self.tables.tombstones, TOMBSTONE))
        ]

    def merge_tombstones(self) -> Composed:
        """Insert every deletion, because it also ends older versions that arrive later."""
        names = [KEY_COLUMN, *METADATA_COLUMNS]
        return SQL("insert into {} ({}) select {} from {} s where {}").format(
            self.tables.tombstones, identifiers(names), identifiers(names, "s"), self.staging, TOMBSTONE
        )

    def close_rows(self) -> Composed:
        """Update `_valid_to` of stored versions where it changed; return the number of versions that a deletion ended.

        Executed before the new versions are inserted, because only one version of a key may have no end.
        """
        return SQL(
            "{ends}, closed as (update {target} t set {valid_to} = e.ends, {stale} = t.{stale} and e.ends is null "
            "from ends e where e.source = 'target' and ({row}) = ({end}) and t.{valid_to} is distinct from e.ends "
            "returning e.deleted and e.was is null as deleted) select count(*) filter (where deleted) from closed"
        ).format(
            ends=self._ends(),
            target=self.tables.target,
            valid_to=Identifier(VALID_TO_COLUMN),
            stale=Identifier(STALE_COLUMN),
            row=identifiers(_IDENTITY, "t"),
            end=identifiers(_IDENTITY, "e"),
        )

    def merge_rows(self) -> Composed:
        """Insert the new versions with their ends."""
        names = [KEY_COLUMN, *(column.name for column in self.tables.columns), *METADATA_COLUMNS]
        return SQL(
            "{ends} insert into {target} ({names}, {state}) select {values}, s.ends is null and {is_stale}, "
            "s._timestamp, s.ends from {ended} s where {readable} order by {staged}"
        ).format(
            ends=SQL("") if self.is_new_table else self._ends(),
            target=self.tables.target,
            names=identifiers(names),
            state=identifiers([STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN]),
            values=identifiers(names, "s"),
            is_stale=self.is_stale(),
            ended=self._ended(),
            staged=identifiers(_IDENTITY, "s"),
            readable=READABLE,
        )

    def flag_stale(self) -> Composed:
        """Flag the current versions that are older than a quarantined record of this batch."""
        return SQL("{} and t.{} is null").format(super().flag_stale(), Identifier(VALID_TO_COLUMN))

    def _ended(self) -> Composed:
        """Return the staged rows with their ends. For a new table this is one pass over the staged rows, by key."""
        if self.is_new_table:
            return SQL(
                "(select s.*, lead(s._timestamp) over (partition by {key} order by {version}) as ends "
                "from {staging} s where s._reason is null)"
            ).format(key=Identifier(KEY_COLUMN), version=identifiers(VERSION_COLUMNS), staging=self.staging)
        return SQL(
            "(select s.*, e.ends from {staging} s join ends e on e.source = 'staged' and ({staged}) = ({end}))"
        ).format(staging=self.staging, staged=identifiers(_IDENTITY, "s"), end=identifiers(_IDENTITY, "e"))

    def _ends(self) -> Composed:
        return _ENDS.format(
            key=Identifier(KEY_COLUMN),
            staging=self.staging,
            target=self.tables.target,
            ledger=self.tables.tombstones,
            stored=identifiers(_IDENTITY, "h"),
            staged=identifiers(_IDENTITY, "s"),
            valid_to=identifiers([VALID_TO_COLUMN], "h"),
            version=identifiers(VERSION_COLUMNS),
            readable=READABLE,
        )
