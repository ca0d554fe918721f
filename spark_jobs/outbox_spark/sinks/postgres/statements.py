"""Compose (but do not execute) the SQL that creates and changes the tables of a PostgreSQL target."""

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
    ColumnType,
)
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.target_table import DIFFERENT_COLUMNS, QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

OFFSETS_TABLE = "outbox_offsets"

METADATA_TYPES = {
    "_sequence": 'text collate "C" not null',
    "_partition_epoch": "integer not null",
    "_partition": "integer not null",
    "_offset": "bigint not null",
    "_timestamp": "timestamp with time zone not null",
}
_TIMESTAMPTZ = "timestamp with time zone"
STATE_TYPES: Mapping[Mode, Mapping[str, str]] = {
    Mode.HARD_DELETE: {STALE_COLUMN: "boolean not null default false"},
    Mode.SOFT_DELETE: {STALE_COLUMN: "boolean not null default false", DELETED_AT_COLUMN: _TIMESTAMPTZ},
    Mode.HISTORY: {
        STALE_COLUMN: "boolean not null default false",
        VALID_FROM_COLUMN: f"{_TIMESTAMPTZ} not null",
        VALID_TO_COLUMN: _TIMESTAMPTZ,
    },
}
"""SQL types of the columns for the state of a row, by the table's mode."""

_COLUMN_COMMENTS = {
    KEY_COLUMN: "Key of the record",
    "_sequence": "Source epoch and WAL position of the change; empty if the record has no source_sequence",
    "_partition_epoch": "Number of times that partitions had been added to the topic when the record was read",
    "_partition": "Partition of the record of this row",
    "_offset": "Offset of the record of this row",
    "_timestamp": "Kafka timestamp of the record of this row",
    STALE_COLUMN: "True while a newer record of the key is in quarantine",
    DELETED_AT_COLUMN: "Time at which the key was deleted; NULL while the key exists",
    VALID_FROM_COLUMN: "Start of the validity of this version",
    VALID_TO_COLUMN: "Time of the next version or deletion, which ends the validity; NULL for the current version",
}
_TABLE_COMMENTS = {
    Mode.HARD_DELETE: "Newest state of each key of topic {}; deleted keys have no row (mode hard-delete)",
    Mode.SOFT_DELETE: "Newest state of each key of topic {}; _deleted_at is set for deleted keys (mode soft-delete)",
    Mode.HISTORY: "All versions of the keys of topic {}; _valid_to is NULL for the current version (mode history)",
}


def column_type(column: Column) -> str:
    """Return the column's SQL type in the form of PostgreSQL's format_type()."""
    if column.kind is ColumnType.NUMERIC:
        return f"numeric({column.precision},{column.scale})"
    return column.kind.value


@dataclass(frozen=True)
class TableStatements:
    """Names and statements of one table and its companion tables."""

    schema: str
    table: str
    columns: Sequence[Column] = ()
    removed_columns: Sequence[str] = ()
    """Names of columns of the table that the schema no longer has."""
    mode: Mode = Mode.HARD_DELETE

    @property
    def label(self) -> str:
        """The name of the table for messages."""
        return f"{self.schema}.{self.table}"

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
    def key_columns(self) -> Sequence[str]:
        """Columns of the primary keys of the table and its ledger."""
        return [KEY_COLUMN, *VERSION_COLUMNS] if self.mode is Mode.HISTORY else [KEY_COLUMN]

    def create_offsets(self) -> Composed:
        return SQL(
            'create table if not exists {} (table_name text collate "C" primary key, run bigint not null, '
            "progress jsonb not null, committed_at timestamptz not null default now())"
        ).format(self.offsets)

    def create_table(self) -> Composed:
        """Create the table without a primary key. Adding it after the rows (`add_keys`) takes half the time."""
        fields = [SQL("{} {}").format(Identifier(field.name), SQL(column_type(field))) for field in self.columns]
        metadata = column_definitions({**METADATA_TYPES, **STATE_TYPES[self.mode]})
        return SQL('create table {} ({} text collate "C" not null, {})').format(
            self.target, Identifier(KEY_COLUMN), comma_separated([*fields, metadata])
        )

    def add_keys(self) -> list[Composed]:
        add_key = SQL("alter table {} add primary key ({})").format(self.target, identifiers(self.key_columns))
        if self.mode is not Mode.HISTORY:
            return [add_key]
        current_index = SQL("create unique index on {} ({}) where {} is null").format(
            self.target, Identifier(KEY_COLUMN), Identifier(VALID_TO_COLUMN)
        )
        # Without statistics, the planner would expect thousands of versions per key until the first autovacuum.
        analyze_statement = SQL("analyze {} ({})").format(self.target, Identifier(KEY_COLUMN))
        return [add_key, current_index, analyze_statement]

    def create_ledger(self) -> list[Composed]:
        """Create the ledger. Drop the ledger of an earlier table, because its entries do not apply to the new table."""
        create_statement = SQL('create table {} ({} text collate "C" not null, {}, primary key ({}))').format(
            self.tombstones, Identifier(KEY_COLUMN), column_definitions(METADATA_TYPES), identifiers(self.key_columns)
        )
        return [SQL("drop table if exists {}").format(self.tombstones), create_statement]

    def create_quarantine(self) -> list[Composed]:
        """Create the quarantine, and an index for the queries that determine which rows are stale."""
        names = {
            "quarantine": self.quarantine,
            "key": Identifier(KEY_COLUMN),
            "metadata": column_definitions(METADATA_TYPES),
        }
        return [
            SQL(
                "create table {quarantine} (topic_id text not null, {metadata}, key bytea, schema_id bigint, "
                "reason text not null, value bytea, quarantined_at timestamptz not null default now(), "
                '{key} text collate "C", schema_header bytea, primary key (topic_id, _partition, _offset))'
            ).format(**names),
            SQL("create index on {quarantine} ({key}) where {key} is not null").format(**names),
        ]

    def has_newer_quarantined(self, alias: str, topic_id: str) -> Composed:
        """Return the condition that the quarantine contains a record that is newer than the row `alias` of its key."""
        return SQL(
            "exists (select from {} q where q.{key} = {alias}.{key} and q.topic_id = {topic} and {quarantined} > {row})"
        ).format(
            self.quarantine,
            key=Identifier(KEY_COLUMN),
            alias=Identifier(alias),
            topic=Literal(topic_id),
            quarantined=version("q"),
            row=version(alias),
        )

    def newest_quarantined(self, topic_id: str) -> Composed:
        """Return the query for the version of the newest quarantined record of each key."""
        return SQL(
            "select distinct on ({key}) {key}, {version} from {quarantine} "
            "where topic_id = {topic} and {key} is not null order by {key}, {descending}"
        ).format(
            key=Identifier(KEY_COLUMN),
            version=identifiers(VERSION_COLUMNS),
            quarantine=self.quarantine,
            topic=Literal(topic_id),
            descending=comma_separated(SQL("{} desc").format(Identifier(name)) for name in VERSION_COLUMNS),
        )

    def update_quarantined(self) -> list[Composed]:
        """Remove the records whose new reason is NULL, and set the new reason for the other records.

        The parameters are an array of partitions, an array of offsets, an array of reasons, and the topic id.
        """
        source = SQL("unnest(%s::int[], %s::bigint[], %s::text[]) as s (number, start, reason)")
        same_record = SQL("q.topic_id = %s and (q._partition, q._offset) = (s.number, s.start)")
        names = {"quarantine": self.quarantine, "source": source, "same_record": same_record}
        return [
            SQL("delete from {quarantine} q using {source} where {same_record} and s.reason is null").format(**names),
            SQL(
                "update {quarantine} q set reason = s.reason from {source} where {same_record} and s.reason is not null"
            ).format(**names),
        ]

    def different_rows(self, columns: Sequence[Column], staging: Identifier) -> Composed:
        """Return the query for rows that differ from staged rows: their key, version and names of different columns.

        The array of names is empty if the staged record is quarantined.
        """
        is_different = [_is_different(column) for column in columns]
        names = [
            SQL("case when {} then {} end").format(condition, Literal(column.name))
            for column, condition in zip(columns, is_different, strict=True)
        ]
        return SQL(
            "select {row}, case when s.__outbox_reason is null then array_remove(array[{names}]::text[], null) "
            "else array[]::text[] end as {result} from {target} t join {staging} s on t.{key} = s.{key} "
            "where (s.__outbox_reason is not null or not s.__outbox_deleted and ({is_different}))"
        ).format(
            row=identifiers([KEY_COLUMN, *VERSION_COLUMNS], "t"),
            names=comma_separated(names),
            result=Identifier(DIFFERENT_COLUMNS),
            target=self.target,
            staging=staging,
            key=Identifier(KEY_COLUMN),
            is_different=SQL(" or ").join([*is_different, SQL("false")]),
        )

    def add_column(self, column: Column, default: object) -> list[Composed]:
        """Add a column and set it to `default` in existing rows. The column has no default for later rows."""
        name, sql_type = Identifier(column.name), SQL(column_type(column))
        add_statement = SQL("alter table {} add column {} {}").format(self.target, name, sql_type)
        if default is None:
            return [add_statement]
        # PostgreSQL stores a constant default of a new column in the catalog, instead of rewriting the rows.
        default_literal = SQL("{}::{}").format(Literal(default), sql_type)
        drop_default_statement = SQL("alter table {} alter column {} drop default").format(self.target, name)
        return [SQL("{} default {}").format(add_statement, default_literal), drop_default_statement]

    def widen_column(self, column: Column) -> Composed:
        """Change a column's type. The server rewrites the table, unless only the precision of a numeric increases."""
        return SQL("alter table {} alter column {} type {}").format(
            self.target, Identifier(column.name), SQL(column_type(column))
        )

    def comments(self, topic: str) -> dict[str, str]:
        """Return a mapping from column names to comments. The empty name stands for the table itself."""
        metadata = {name: _COLUMN_COMMENTS[name] for name in (KEY_COLUMN, *METADATA_COLUMNS, *STATE_TYPES[self.mode])}
        docs = {column.name: column.doc for column in self.columns if column.doc}
        return {"": _TABLE_COMMENTS[self.mode].format(topic), **metadata, **docs}

    def comment(self, name: str, text: str) -> Composed:
        if not name:
            return SQL("comment on table {} is {}").format(self.target, Literal(text))
        return SQL("comment on column {}.{} is {}").format(self.target, Identifier(name), Literal(text))


def _is_different(column: Column) -> Composed:
    # Without COLLATE, the comparison would depend on the column's collation, and could fail if it was changed.
    collation = SQL(' collate "C"') if column.kind is ColumnType.TEXT else SQL("")
    return SQL("t.{0}{1} is distinct from s.{0}{1}").format(Identifier(column.name), collation)


def comma_separated(items: Iterable[Composed]) -> Composed:
    return SQL(", ").join(items)


def identifiers(names: Iterable[str], alias: str = "") -> Composed:
    """Return the comma-separated column names, qualified by `alias` if it is not empty."""
    return comma_separated(SQL("{}").format(Identifier(*([alias] if alias else []), name)) for name in names)


def column_definitions(types: Mapping[str, str]) -> Composed:
    """Return the comma-separated column definitions for CREATE TABLE."""
    return comma_separated(SQL("{} {}").format(Identifier(name), SQL(sql_type)) for name, sql_type in types.items())


def version(alias: str) -> Composed:
    """Return the version of the row `alias` as a row constructor. Comparing two versions applies the ordering rule."""
    return SQL("({})").format(identifiers(VERSION_COLUMNS, alias))


def set_excluded(names: Iterable[str]) -> Composed:
    """Return the assignments `NAME = excluded.NAME` for ON CONFLICT DO UPDATE."""
    return comma_separated(SQL("{} = excluded.{}").format(Identifier(name), Identifier(name)) for name in names)
