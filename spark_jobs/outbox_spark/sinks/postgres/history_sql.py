"""The SQL that applies one staged batch to a history table: a row for every version. Pure: runs nothing.

A version is the source's: a record that a connector sends again, at another offset, is the version that is there.
Intervals run from one version to the next, deletions among them, whenever each arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.postgres.merge_sql import GOOD, TOMBSTONE, Merge
from outbox_spark.sinks.postgres.statements import identifiers, joined

_IDENTITY = [KEY_COLUMN, *VERSION_COLUMNS]
# "offset 0" keeps the planner from turning a look-up by key, per staged row, into a scan of the whole table, which it
# does for lack of statistics: how many versions a key has is not known of a table that was just filled.
_KNOWN = SQL(
    "exists (select from {held} r where r.{key} = s.{key} and r._sequence = s._sequence and (s._sequence <> '' "
    "or (r._partition_epoch, r._offset) = (s._partition_epoch, s._offset)) offset 0)"
)
# Of every key that the batch says something new of: all its versions and deletions, each with what ended it.
_ENDS = SQL(
    "with keys as (select distinct s.{key} from {staging} s where s._reason is null), "
    "known as ("
    "select {held}, h._timestamp, {valid_to} as was, 'target' as source from keys k "
    "cross join lateral (select * from {target} t where t.{key} = k.{key} offset 0) h "
    "union all select {held}, h._timestamp, null, 'ledger' from keys k "
    "cross join lateral (select * from {ledger} l where l.{key} = k.{key} offset 0) h "
    "union all select {staged}, s._timestamp, null, 'staged' from {staging} s where {good}), "
    "ends as (select *, lead(_timestamp) over w as ends, lead(source) over w = 'ledger' as deleted "
    "from known window w as (partition by {key} order by {version}))"
)


@dataclass(frozen=True)
class History(Merge):
    """Statements for one batch: `forget_known` first, then `merge_tombstones`, `close_rows`, `merge_rows`."""

    def forget_known(self) -> list[Composed]:
        """Take out of staging what the table and its ledger hold already."""
        return [
            SQL("delete from {} s where {} and {}").format(
                self.staging.name, kind, _KNOWN.format(held=held, key=Identifier(KEY_COLUMN))
            )
            for held, kind in ((self.tables.target, GOOD), (self.tables.tombstones, TOMBSTONE))
        ]

    def merge_tombstones(self) -> Composed:
        """Every deletion is remembered: an older version that arrives later ends there."""
        names = [KEY_COLUMN, *METADATA_COLUMNS]
        return SQL("insert into {} ({}) select {} from {} s where {}").format(
            self.tables.tombstones, identifiers(names), identifiers(names, "s"), self.staging.name, TOMBSTONE
        )

    def close_rows(self) -> Composed:
        """End the versions that were followed by a new one, or end otherwise now; yields how many a deletion ended.

        Before the new versions are inserted: of a key only one may have no end.
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
        """Insert the new versions, with what ended each."""
        names = [KEY_COLUMN, *(column.name for column in self.tables.columns), *METADATA_COLUMNS]
        values = [
            identifiers([KEY_COLUMN], "s"),
            *(self.staging.value(column) for column in self.tables.columns),
            identifiers(METADATA_COLUMNS, "s"),
        ]
        return SQL(
            "{ends} insert into {target} ({names}, {own}) select {values}, s.ends is null and {is_stale}, "
            "s._timestamp, s.ends from {ended} s where {good} order by {staged}"
        ).format(
            ends=SQL("") if self.first else self._ends(),
            target=self.tables.target,
            names=identifiers(names),
            own=identifiers([STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN]),
            values=joined(values),
            is_stale=self.is_stale(),
            ended=self._ended(),
            staged=identifiers(_IDENTITY, "s"),
            good=GOOD,
        )

    def flag_stale(self) -> Composed:
        """Current versions of which this batch set a newer record apart."""
        return SQL("{} and t.{} is null").format(super().flag_stale(), Identifier(VALID_TO_COLUMN))

    def _ended(self) -> Composed:
        """Staged rows with what ended them. Of a new table staging is all there is: one pass in the key's order."""
        if self.first:
            return SQL(
                "(select s.*, lead(s._timestamp) over (partition by {key} order by {version}) as ends "
                "from {staging} s where s._reason is null)"
            ).format(key=Identifier(KEY_COLUMN), version=identifiers(VERSION_COLUMNS), staging=self.staging.name)
        return SQL(
            "(select s.*, e.ends from {staging} s join ends e on e.source = 'staged' and ({staged}) = ({end}))"
        ).format(staging=self.staging.name, staged=identifiers(_IDENTITY, "s"), end=identifiers(_IDENTITY, "e"))

    def _ends(self) -> Composed:
        return _ENDS.format(
            key=Identifier(KEY_COLUMN),
            staging=self.staging.name,
            target=self.tables.target,
            ledger=self.tables.tombstones,
            held=identifiers(_IDENTITY, "h"),
            staged=identifiers(_IDENTITY, "s"),
            valid_to=identifiers([VALID_TO_COLUMN], "h"),
            version=identifiers(VERSION_COLUMNS),
            good=GOOD,
        )
