"""Read outbox rows as text, in the formats of the connector's records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString

from psycopg import sql

from outbox_kit.encoding import OutboxRow
from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.relay.tables import RelayTables

TIMESTAMPTZ = "timestamp with time zone"
JSON_TYPES = ("json", "jsonb")
NATIVE_TYPES = ("bytea", "smallint", "integer", "bigint", "boolean", "real", "double precision")
TEXT_COLUMNS = ("id", "aggregate_type", "aggregate_id", "event_type")
MODIFIER = re.compile(r"\([0-9, ]+\)")
EVENT_TIME = sql.SQL("""
    case when {column} >= timestamp '0001-01-01' and {column} < timestamp '10000-01-01'
         then to_char({column}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end""")


@dataclass(frozen=True)
class RowReader:
    """Reads the columns of outbox rows. `types` maps column names to column types."""

    tables: RelayTables
    types: dict[str, str]

    @cached_property
    def columns(self) -> sql.Composed:
        """Select list for the columns that a record needs. Additional columns are numbered."""
        names = self.tables.pipeline.source.columns
        entries = [
            *(_text(getattr(names, name), name) for name in TEXT_COLUMNS),
            sql.SQL("{} as payload").format(self._value(names.payload)),
            sql.SQL("{} as event_time").format(EVENT_TIME.format(column=self.utc(names.created_at))),
        ]
        if names.headers in self.types:
            entries.append(_text(names.headers, "headers"))
        for position, name in enumerate(self.additional):
            entries.append(
                sql.SQL("{} as {}").format(self._column_text(name), sql.Identifier(f"additional_{position}"))
            )
        return sql.SQL(", ").join(entries)

    @cached_property
    def stored_size(self) -> sql.Composed:
        """Return an expression for the stored, possibly compressed size of payload and headers in bytes."""
        return self._sum_of_sizes("coalesce(pg_column_size({column}), 0)")

    @cached_property
    def size(self) -> sql.Composed:
        """Return an expression for the size of payload and headers in bytes. Only compressed values are read for it."""
        return self._sum_of_sizes(
            "case when pg_column_compression({column}) is null then coalesce(pg_column_size({column}), 0) "
            "else octet_length({value}) end"
        )

    def _sum_of_sizes(self, expression: LiteralString) -> sql.Composed:
        names = self.tables.pipeline.source.columns
        columns = [name for name in (names.payload, names.headers) if name in self.types]
        sizes = [sql.SQL(expression).format(column=sql.Identifier(name), value=self._value(name)) for name in columns]
        return sql.SQL(" + ").join(sizes)

    @cached_property
    def additional(self) -> list[str]:
        return additional_columns(self.tables.pipeline)

    @cached_property
    def _payload_is_json(self) -> bool:
        return self.types[self.tables.pipeline.source.columns.payload] in JSON_TYPES

    def outbox_row(self, row: Row) -> OutboxRow:
        return OutboxRow(
            **{name: row[name] for name in (*TEXT_COLUMNS, "payload", "event_time")},
            headers=row.get("headers"),
            additional={name: row[f"additional_{position}"] for position, name in enumerate(self.additional)},
            payload_is_json=self._payload_is_json,
        )

    def whole_row(self, connection: Connection, row_id: str | None) -> dict[str, tuple[str, object]]:
        """Return a mapping from a row's column names to types and values, or {} if the row was deleted."""
        entries = [
            sql.SQL("{} as {}").format(self._dead_letter_value(name), sql.Identifier(name)) for name in self.types
        ]
        statement = sql.SQL("select {columns} from {outbox} where {id} = %s").format(
            columns=sql.SQL(", ").join(entries), **self.tables.names
        )
        found = connection.execute(statement, (row_id,)).fetchone()
        return {name: (self.types[name], value) for name, value in (found or {}).items()}

    def _dead_letter_value(self, name: str) -> sql.Composable:
        return sql.Identifier(name) if self.types[name] in NATIVE_TYPES else self._column_text(name)

    def _value(self, name: str) -> sql.Composable:
        """Return an expression for the value of a column: bytes for bytea, text for other types."""
        return sql.Identifier(name) if self.types[name] == "bytea" else sql.SQL("{}::text").format(sql.Identifier(name))

    def _column_text(self, name: str) -> sql.Composable:
        """Return an expression for a column's text. As in Debezium, timestamptz is in UTC with its type's precision."""
        if not self._is_zoned(name):
            return sql.SQL("{}::text").format(sql.Identifier(name))
        digits = (MODIFIER.findall(self.types[name]) or ["(6)"])[0][1]
        fraction = "" if digits == "0" else f".FF{digits}"
        text = sql.SQL("""
            case when not isfinite({column}) then {column}::text
                 when {utc} < timestamp '10000-01-01' then to_char({utc}, {form})
                 else '+' || to_char({utc}, {form}) end""")
        form = sql.Literal(f'YYYY-MM-DD"T"HH24:MI:SS{fraction}"Z"')
        return text.format(column=sql.Identifier(name), utc=self.utc(name), form=form)

    def utc(self, name: str) -> sql.Composable:
        """Return an expression for the column as a timestamp without time zone, in UTC."""
        column = sql.Identifier(name)
        return sql.SQL("({} at time zone 'UTC')").format(column) if self._is_zoned(name) else column

    def _is_zoned(self, name: str) -> bool:
        return without_modifier(self.types[name]) == TIMESTAMPTZ


def without_modifier(column_type: str) -> str:
    """Return the name of a type without its modifier, such as the length in varchar(20)."""
    return MODIFIER.sub("", column_type)


def additional_columns(pipeline: Pipeline) -> list[str]:
    """Return the columns that contain schema versions, headers and partition fields, without duplicates."""
    source = pipeline.source
    versions = [source.schema_version_column] if source.schema_version_column else []
    return list(dict.fromkeys([*versions, *source.header_columns, *pipeline.partition_fields.values()]))


def _text(column: str, name: str) -> sql.Composed:
    return sql.SQL("{}::text as {}").format(sql.Identifier(column), sql.Identifier(name))
