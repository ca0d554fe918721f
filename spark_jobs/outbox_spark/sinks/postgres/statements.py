"""The tables of the PostgreSQL target: their names, and the SQL that makes and changes them. Pure: runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier, Literal

from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    STALE_COLUMN,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
    Column,
    Kind,
)
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

OFFSETS_TABLE = "outbox_offsets"

METADATA_TYPES = {
    "_sequence": 'text collate "C" not null',
    "_partition_epoch": "integer not null",
    "_partition": "integer not null",
    "_offset": "bigint not null",
    "_timestamp": "timestamp with time zone not null",
}
_TIME = "timestamp with time zone"
STATE_TYPES: Mapping[Mode, Mapping[str, str]] = {
    Mode.HARD_DELETE: {STALE_COLUMN: "boolean not null default false"},
    Mode.SOFT_DELETE: {STALE_COLUMN: "boolean not null default false", DELETED_AT_COLUMN: _TIME},
    Mode.HISTORY: {
        STALE_COLUMN: "boolean not null default false",
        VALID_FROM_COLUMN: f"{_TIME} not null",
        VALID_TO_COLUMN: _TIME,
    },
}
"""What says how a row stands, by the table's mode."""

_COMMENTS = {
    KEY_COLUMN: "Key of the records",
    "_sequence": "Where in the source's log the change is; empty where records do not say",
    "_partition_epoch": "How often the topic had been given more partitions",
    "_partition": "Partition of the record that this row shows",
    "_offset": "Offset of the record that this row shows",
    "_timestamp": "Kafka timestamp of the record that this row shows",
    STALE_COLUMN: "True while a newer record of the key is in quarantine",
    DELETED_AT_COLUMN: "When the key was deleted; NULL while it is there",
    VALID_FROM_COLUMN: "When this version began",
    VALID_TO_COLUMN: "When the next version or a deletion ended this one; NULL for the current version",
}
_TABLE_COMMENTS = {
    Mode.HARD_DELETE: "Newest state of topic {}; deleted keys have no row (mode hard-delete)",
    Mode.SOFT_DELETE: "Newest state of topic {}; deleted keys have _deleted_at (mode soft-delete)",
    Mode.HISTORY: "Every version of topic {}; current ones have no _valid_to (mode history)",
}


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
    columns: Sequence[Column] = ()
    extra: Sequence[str] = ()
    mode: Mode = Mode.HARD_DELETE

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

    @property
    def identity(self) -> Sequence[str]:
        """Columns that tell a row (and a ledger entry) from all others."""
        return [KEY_COLUMN, *VERSION_COLUMNS] if self.mode is Mode.HISTORY else [KEY_COLUMN]

    def create_offsets(self) -> Composed:
        return SQL(
            'create table if not exists {} (table_name text collate "C" primary key, run bigint not null, '
            "progress jsonb not null, committed_at timestamptz not null default now())"
        ).format(self.offsets)

    def create_target(self) -> Composed:
        """Without its key: `add_keys` comes after the rows, which takes half the time."""
        fields = [SQL("{} {}").format(Identifier(c.name), SQL(column_type(c))) for c in self.columns]
        rest = typed({**METADATA_TYPES, **STATE_TYPES[self.mode]})
        return SQL('create table {} ({} text collate "C" not null, {})').format(
            self.target, Identifier(KEY_COLUMN), joined([*fields, rest])
        )

    def add_keys(self) -> list[Composed]:
        key = SQL("alter table {} add primary key ({})").format(self.target, identifiers(self.identity))
        if self.mode is not Mode.HISTORY:
            return [key]
        current = SQL("create unique index on {} ({}) where {} is null").format(
            self.target, Identifier(KEY_COLUMN), Identifier(VALID_TO_COLUMN)
        )
        # Until autovacuum comes by, the planner would take every key for one with thousands of versions.
        analyze = SQL("analyze {} ({})").format(self.target, Identifier(KEY_COLUMN))
        return [key, current, analyze]

    def create_ledger(self) -> list[Composed]:
        """A new ledger of deleted keys. One that is left of a dropped table says nothing about the new one."""
        create = SQL('create table {} ({} text collate "C" not null, {}, primary key ({}))').format(
            self.tombstones, Identifier(KEY_COLUMN), typed(METADATA_TYPES), identifiers(self.identity)
        )
        return [SQL("drop table if exists {}").format(self.tombstones), create]

    def create_quarantine(self) -> Composed:
        """As layout 1 made it; `add_quarantine_key` follows. It outlives the table, so it may be there already."""
        return SQL(
            "create table if not exists {} (topic_id text not null, {}, key bytea, schema_id bigint, "
            "reason text not null, value bytea, quarantined_at timestamptz not null default now(), "
            "primary key (topic_id, _partition, _offset))"
        ).format(self.quarantine, typed(METADATA_TYPES))

    def add_quarantine_key(self) -> list[Composed]:
        """What layout 1 lacks: the key as text, so that the rows that are stale are found by an index."""
        unnamed = [Reason.NO_KEY, Reason.KEY_NOT_TEXT, f"{Reason.INVALID}:{KEY_COLUMN}"]
        names = {"quarantine": self.quarantine, "key": Identifier(KEY_COLUMN)}
        return [
            SQL('alter table {quarantine} add column {key} text collate "C"').format(**names),
            SQL("update {quarantine} set {key} = convert_from(key, 'UTF8') where reason <> all({unnamed})").format(
                **names, unnamed=Literal(unnamed)
            ),
            SQL("create index on {quarantine} ({key}) where {key} is not null").format(**names),
        ]

    def add_stale(self, topic_id: str) -> list[Composed]:
        """What layout 1 lacks: the flag, and its value for the rows that are there."""
        flag = Identifier(STALE_COLUMN)
        add = SQL("alter table {} add column {} {}").format(
            self.target, flag, SQL(STATE_TYPES[Mode.HARD_DELETE][STALE_COLUMN])
        )
        fill = SQL("update {} t set {} = true where {}").format(self.target, flag, self.newer_poison("t", topic_id))
        return [add, fill]

    def newer_poison(self, alias: str, topic_id: str) -> Composed:
        """Whether the quarantine holds a newer record of the key of `alias`."""
        return SQL(
            "exists (select from {} q where q.{key} = {alias}.{key} and q.topic_id = {topic} and {bad} > {row})"
        ).format(
            self.quarantine,
            key=Identifier(KEY_COLUMN),
            alias=Identifier(alias),
            topic=Literal(topic_id),
            bad=version("q"),
            row=version(alias),
        )

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

    def widen_column(self, column: Column) -> Composed:
        """Change a column's type; the server rewrites the table for it, unless it is a numeric's precision."""
        return SQL("alter table {} alter column {} type {}").format(
            self.target, Identifier(column.name), SQL(column_type(column))
        )

    def comments(self, topic: str) -> dict[str, str]:
        """What is said of each column, by its name; of the table under the empty name."""
        ours = {name: _COMMENTS[name] for name in (KEY_COLUMN, *METADATA_COLUMNS, *STATE_TYPES[self.mode])}
        docs = {column.name: column.doc for column in self.columns if column.doc}
        return {"": _TABLE_COMMENTS[self.mode].format(topic), **ours, **docs}

    def comment(self, name: str, text: str) -> Composed:
        if not name:
            return SQL("comment on table {} is {}").format(self.target, Literal(text))
        return SQL("comment on column {}.{} is {}").format(self.target, Identifier(name), Literal(text))


def joined(parts: Iterable[Composed]) -> Composed:
    """Parts of a list, with commas between."""
    return SQL(", ").join(parts)


def identifiers(names: Iterable[str], alias: str = "") -> Composed:
    """Names of columns, of `alias` when there is one, with commas between."""
    return joined(SQL("{}").format(Identifier(*([alias] if alias else []), name)) for name in names)


def typed(types: Mapping[str, str]) -> Composed:
    """Definitions of columns, with commas between."""
    return joined(SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in types.items())


def version(alias: str) -> Composed:
    """The version of a row: compares by the ordering rule."""
    return SQL("({})").format(identifiers(VERSION_COLUMNS, alias))


def assign(names: Iterable[str]) -> Composed:
    """What ON CONFLICT sets to the value that was to be inserted."""
    return joined(SQL("{} = excluded.{}").format(Identifier(name), Identifier(name)) for name in names)
