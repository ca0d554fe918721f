"""The SQL of the PostgreSQL target. Pure: composes statements, runs none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier, Literal

from outbox_spark.columns import KEY_COLUMN, METADATA_COLUMNS, Column, Kind
from outbox_spark.order import VERSION_COLUMNS
from outbox_spark.sinks.base import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

OFFSETS_TABLE = "outbox_offsets"
STAGING_INFIX = "__staging_"

_METADATA_TYPES = {
    "_sequence": 'text collate "C" not null',
    "_partition_epoch": "integer not null",
    "_partition": "integer not null",
    "_offset": "bigint not null",
    "_timestamp": "timestamp with time zone not null",
}
# What Spark's JDBC writer sends as text, because the server reads it more exactly than Java types carry it
# (years before 1582, zones) or because JDBC has no such type. The merge casts it.
_SENT_AS_TEXT = frozenset({Kind.UUID, Kind.JSON, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_OUTCOME_TYPES = {
    "_deleted": "boolean",
    "_reason": "text",
    "_schema_id": "bigint",
    "_key": "bytea",
    "_value": "bytea",
}


def sent_as_text(column: Column) -> bool:
    """Whether the staging table holds this column as text."""
    return column.kind in _SENT_AS_TEXT


def column_type(column: Column) -> str:
    """Type in the target, as format_type() prints it."""
    if column.kind is Kind.NUMERIC:
        return f"numeric({column.precision},{column.scale})"
    return column.kind.value


@dataclass(frozen=True)
class Statements:
    """Statements for one table. `columns` are the reader's, `extra` those that only the table has (still)."""

    schema: str
    table: str
    columns: Sequence[Column]
    extra: Sequence[str] = ()

    @property
    def target(self) -> Identifier:
        return Identifier(self.schema, self.table)

    @property
    def tombstones(self) -> Identifier:
        return Identifier(self.schema, self.table + TOMBSTONES_SUFFIX)

    @property
    def quarantine(self) -> Identifier:
        return Identifier(self.schema, self.table + QUARANTINE_SUFFIX)

    @property
    def offsets(self) -> Identifier:
        return Identifier(self.schema, OFFSETS_TABLE)

    def create_offsets(self) -> Composed:
        return SQL(
            'create table if not exists {} (table_name text collate "C" primary key, run bigint not null, '
            "progress jsonb not null, committed_at timestamptz not null default now())"
        ).format(self.offsets)

    def create_target(self) -> Composed:
        fields = [SQL("{} {}").format(Identifier(c.name), SQL(column_type(c))) for c in self.columns]
        metadata = [SQL("{} {}").format(Identifier(n), SQL(t)) for n, t in _METADATA_TYPES.items()]
        return SQL('create table {} ({} text collate "C" primary key, {})').format(
            self.target, Identifier(KEY_COLUMN), _list([*fields, *metadata])
        )

    def create_companions(self) -> list[Composed]:
        """The ledger of deleted keys and the quarantine."""
        metadata = _list(SQL("{} {}").format(Identifier(n), SQL(t)) for n, t in _METADATA_TYPES.items())
        ledger = SQL('create table if not exists {} ({} text collate "C" primary key, {})').format(
            self.tombstones, Identifier(KEY_COLUMN), metadata
        )
        quarantine = SQL(
            "create table if not exists {} (topic_id text not null, {}, key bytea, schema_id bigint, "
            "reason text not null, value bytea, quarantined_at timestamptz not null default now(), "
            "primary key (topic_id, _partition, _offset))"
        ).format(self.quarantine, metadata)
        return [ledger, quarantine]

    def add_column(self, column: Column, default: object) -> list[Composed]:
        """Add a column; rows that are there show `default`, rows to come have none of the table's own."""
        name, kind = Identifier(column.name), SQL(column_type(column))
        added = SQL("alter table {} add column {} {}").format(self.target, name, kind)
        if default is None:
            return [added]
        # A constant default is kept in the catalogue: no row is rewritten.
        literal = SQL("{}::{}").format(Literal(default), kind)
        forget = SQL("alter table {} alter column {} drop default").format(self.target, name)
        return [SQL("{} default {}").format(added, literal), forget]

    def create_staging(self, staging: Identifier) -> Composed:
        fields = [
            SQL("{} {}").format(Identifier(c.name), SQL("text" if sent_as_text(c) else column_type(c)))
            for c in self.columns
        ]
        types: Mapping[str, str] = {
            **{name: kind.removesuffix(" not null") for name, kind in _METADATA_TYPES.items()},
            **_OUTCOME_TYPES,
        }
        rest = [SQL("{} {}").format(Identifier(n), SQL(t)) for n, t in types.items()]
        return SQL('create unlogged table {} ({} text collate "C", {})').format(
            staging, Identifier(KEY_COLUMN), _list([*fields, *rest])
        )

    def count_staged(self, staging: Identifier) -> Composed:
        """How many records are staged. A retried task may have staged some of them twice."""
        return SQL("select count(distinct (_partition, _offset)) from {}").format(staging)

    def merge_tombstones(self, staging: Identifier) -> Composed:
        """Ledger entries of the tombstones that are newer than the row they delete."""
        names = [KEY_COLUMN, *METADATA_COLUMNS]
        return SQL(
            """
            insert into {ledger} as t ({names})
            select distinct on (s.{key}) {values} from {staging} s
            where s._deleted and s._reason is null
              and not exists (select from {target} r where r.{key} = s.{key} and {row} >= {staged})
            order by s.{key}, {newest_first}
            on conflict ({key}) do update set {assignments} where {stored} < {excluded}
            """
        ).format(
            **self._names(staging),
            names=_identifiers(names),
            values=_list(SQL("s.{}").format(Identifier(name)) for name in names),
            row=_version("r"),
            assignments=_assign(METADATA_COLUMNS),
        )

    def delete_rows(self, staging: Identifier) -> Composed:
        """Rows that a newer tombstone deletes."""
        return SQL(
            "delete from {target} t using {staging} s where t.{key} = s.{key} "
            "and s._deleted and s._reason is null and {stored} < {staged}"
        ).format(**self._names(staging))

    def merge_rows(self, staging: Identifier) -> Composed:
        """Rows that are newer than both what the table holds and the key's tombstone.

        A Spark task that is retried after its insert was committed stages its rows a second time, and ON
        CONFLICT may not touch a row twice: `distinct on` leaves the newest of them. The two anti-joins keep
        a stale replay from locking rows; the guard after ON CONFLICT is what holds whatever happens.
        """
        names = [KEY_COLUMN, *(column.name for column in self.columns), *METADATA_COLUMNS]
        set_null = [SQL("{} = null").format(Identifier(name)) for name in self.extra]
        assignments = [_assign(names[1:]), *set_null]
        return SQL(
            """
            insert into {target} as t ({names})
            select distinct on (s.{key}) {values} from {staging} s
            where not s._deleted and s._reason is null
              and not exists (select from {target} r where r.{key} = s.{key} and {row} >= {staged})
              and not exists (select from {ledger} r where r.{key} = s.{key} and {row} >= {staged})
            order by s.{key}, {newest_first}
            on conflict ({key}) do update set {assignments} where {stored} < {excluded}
            """
        ).format(
            **self._names(staging),
            names=_identifiers(names),
            values=_list([*self._staged_values(), *(SQL("s.{}").format(Identifier(n)) for n in METADATA_COLUMNS)]),
            row=_version("r"),
            assignments=_list(assignments),
        )

    def forget_revived(self, staging: Identifier) -> Composed:
        """Ledger entries of keys that have a newer row again: the row's own version guards them now."""
        return SQL(
            "delete from {ledger} d using {staging} s, {target} t "
            "where d.{key} = s.{key} and t.{key} = s.{key} and {entry} < {stored}"
        ).format(**self._names(staging), entry=_version("d"))

    def merge_quarantine(self, staging: Identifier, topic_id: str) -> Composed:
        return SQL(
            "insert into {quarantine} (topic_id, {metadata}, key, schema_id, reason, value) "
            "select {topic_id}, {metadata}, _key, _schema_id, _reason, _value from {staging} "
            "where _reason is not null on conflict do nothing"
        ).format(
            quarantine=self.quarantine,
            staging=staging,
            metadata=_identifiers(METADATA_COLUMNS),
            topic_id=Literal(topic_id),
        )

    def _names(self, staging: Identifier) -> dict[str, Identifier | Composed]:
        return {
            "target": self.target,
            "ledger": self.tombstones,
            "staging": staging,
            "key": Identifier(KEY_COLUMN),
            "stored": _version("t"),
            "staged": _version("s"),
            "excluded": _version("excluded"),
            "newest_first": _list(SQL("s.{} desc").format(Identifier(name)) for name in VERSION_COLUMNS),
        }

    def _staged_values(self) -> list[Composed]:
        values = [SQL("s.{}").format(Identifier(KEY_COLUMN))]
        for column in self.columns:
            value = SQL("s.{}").format(Identifier(column.name))
            cast = SQL("::{}").format(SQL(column_type(column))) if sent_as_text(column) else SQL("").format()
            values.append(value + cast)
        return values


def _list(parts: Iterable[Composed]) -> Composed:
    return SQL(", ").join(parts)


def _identifiers(names: Iterable[str]) -> Composed:
    return SQL(", ").join(Identifier(name) for name in names)


def _version(alias: str) -> Composed:
    columns = _list(SQL("{}.{}").format(Identifier(alias), Identifier(name)) for name in VERSION_COLUMNS)
    return SQL("({})").format(columns)


def _assign(names: Iterable[str]) -> Composed:
    return _list(SQL("{} = excluded.{}").format(Identifier(name), Identifier(name)) for name in names)
