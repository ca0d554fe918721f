"""Compose (but do not execute) the SQL that applies one staged batch to a history table, with one row per version.

A version is a state of the source. A record that a connector sends again has a new offset, but is not a new version. An
interval extends from a version to the next version or deletion of the key, regardless of the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.postgres.merge_sql import IS_LIVE_RECORD, IS_TOMBSTONE, MergeStatements
from outbox_spark.sinks.postgres.statements import identifiers

_IDENTITY = [KEY_COLUMN, *VERSION_COLUMNS]
# "offset 0" makes the planner use an index lookup per staged row. Otherwise, it scans a table that was just filled,
# because statistics about the number of versions per key do not exist yet.
_IS_STORED = SQL(
    "exists (select from {stored} r where r.{key} = s.{key} and r._sequence = s._sequence and (s._sequence <> '' "
    "or (r._partition_epoch, r._offset) = (s._partition_epoch, s._offset)) offset 0)"
)
# The CTE `ends` contains all versions and deletions of the keys in the batch, each with the end of its interval.
_ENDS_CTE = SQL(
    "with keys as (select distinct s.{key} from {staging} s where s.__outbox_reason is null), "
    "known as ("
    "select {stored_id}, h._timestamp, {valid_to} as was, 'target' as source from keys k "
    "cross join lateral (select * from {target} t where t.{key} = k.{key} offset 0) h "
    "union all select {stored_id}, h._timestamp, null, 'ledger' from keys k "
    "cross join lateral (select * from {ledger} l where l.{key} = k.{key} offset 0) h "
    "union all select {staged_id}, s._timestamp, null, 'staged' from {staging} s where {live}), "
    "ends as (select *, lead(_timestamp) over w as __outbox_end, lead(source) over w = 'ledger' as deleted "
    "from known window w as (partition by {key} order by {version}))"
)


@dataclass(frozen=True)
class HistoryMergeStatements(MergeStatements):
    """Statements for one batch. Their order is `remove_known`, `merge_tombstones`, `close_rows`, `merge_rows`."""

    def remove_known(self) -> list[Composed]:
        """Delete staged rows whose version is in the table, and staged tombstones whose version is in its ledger."""
        return [
            SQL("delete from {} s where {} and {}").format(
                self.staging, condition, _IS_STORED.format(stored=table, key=Identifier(KEY_COLUMN))
            )
            for table, condition in ((self.tables.target, IS_LIVE_RECORD), (self.tables.tombstones, IS_TOMBSTONE))
        ]

    def merge_tombstones(self) -> Composed:
        """Insert all staged tombstones into the ledger, because they also end older versions that arrive later."""
        names = [KEY_COLUMN, *METADATA_COLUMNS]
        return SQL("insert into {} ({}) select {} from {} s where {}").format(
            self.tables.tombstones, identifiers(names), identifiers(names, "s"), self.staging, IS_TOMBSTONE
        )

    def close_rows(self) -> Composed:
        """Update `_valid_to` of stored versions if it changed. Return the number of versions that a deletion ended.

        Execute this before inserting new versions, because a unique index permits only one open-ended version per key.
        """
        return SQL(
            "{ends}, closed as (update {target} t set {valid_to} = e.__outbox_end, "
            "{stale} = t.{stale} and e.__outbox_end is null from ends e where e.source = 'target' and "
            "({row}) = ({end}) and t.{valid_to} is distinct from e.__outbox_end "
            "returning e.deleted and e.was is null as deleted) select count(*) filter (where deleted) from closed"
        ).format(
            ends=self._ends_cte(),
            target=self.tables.target,
            valid_to=Identifier(VALID_TO_COLUMN),
            stale=Identifier(STALE_COLUMN),
            row=identifiers(_IDENTITY, "t"),
            end=identifiers(_IDENTITY, "e"),
        )

    def merge_rows(self) -> Composed:
        """Insert the staged versions with the ends of their intervals."""
        names = [KEY_COLUMN, *(column.name for column in self.tables.columns), *METADATA_COLUMNS]
        return SQL(
            "{ends} insert into {target} ({names}, {state}) select {values}, s.__outbox_end is null and {is_stale}, "
            "s._timestamp, s.__outbox_end from {ended} s where {live} order by {staged}"
        ).format(
            ends=SQL("") if self.is_new_table else self._ends_cte(),
            target=self.tables.target,
            names=identifiers(names),
            state=identifiers([STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN]),
            values=identifiers(names, "s"),
            is_stale=self.is_stale(),
            ended=self._staged_with_ends(),
            staged=identifiers(_IDENTITY, "s"),
            live=IS_LIVE_RECORD,
        )

    def flag_stale(self) -> Composed:
        """Mark current versions as stale if they are older than a quarantined record of their key in this batch."""
        return SQL("{} and t.{} is null").format(super().flag_stale(), Identifier(VALID_TO_COLUMN))

    def _staged_with_ends(self) -> Composed:
        """Return a subquery of staged rows with the ends of their intervals. For a new table, it reads only staging."""
        if self.is_new_table:
            return SQL(
                "(select s.*, lead(s._timestamp) over (partition by {key} order by {version}) as __outbox_end "
                "from {staging} s where s.__outbox_reason is null)"
            ).format(key=Identifier(KEY_COLUMN), version=identifiers(VERSION_COLUMNS), staging=self.staging)
        return SQL(
            "(select s.*, e.__outbox_end from {staging} s join ends e on e.source = 'staged' and ({staged}) = ({end}))"
        ).format(staging=self.staging, staged=identifiers(_IDENTITY, "s"), end=identifiers(_IDENTITY, "e"))

    def _ends_cte(self) -> Composed:
        return _ENDS_CTE.format(
            **self._sql_names(),
            stored_id=identifiers(_IDENTITY, "h"),
            staged_id=identifiers(_IDENTITY, "s"),
            valid_to=identifiers([VALID_TO_COLUMN], "h"),
            version=identifiers(VERSION_COLUMNS),
            live=IS_LIVE_RECORD,
        )
