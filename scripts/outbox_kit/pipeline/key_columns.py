"""Build SQL that converts between the key columns of a business table and the aggregate_id.

The aggregate_id is the text of one column, or the text that outbox_events.composite_id() returns for several columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

ESCAPED = sql.SQL("replace(replace({}::text, '~', '~0'), '/', '~1')")
UNESCAPED = sql.SQL("replace(replace(split_part({}, '/', {}), '~1', '/'), '~0', '~')::{}")
SEPARATOR = sql.SQL(" || '/' || ")
COMMA = sql.SQL(", ")
EVERY_ROW = sql.SQL("")


def identifiers(columns: Sequence[str], table: str | None = None) -> list[sql.Identifier]:
    """Return the quoted names of the columns. `table` is an alias in the query."""
    return [sql.Identifier(*filter(None, (table, column))) for column in columns]


def aggregate_id(values: Sequence[sql.Composable]) -> sql.Composed:
    """Return the expression for the aggregate_id with these key values. It is null if one of the values is null."""
    if len(values) == 1:
        return sql.SQL("{}::text").format(*values)
    return SEPARATOR.join(ESCAPED.format(value) for value in values)


def all_keys(columns: Sequence[str], table: sql.Composable, condition: sql.Composable = EVERY_ROW) -> sql.Composed:
    """Return the SQL in place of `:keys` for the keys of all rows of the table: an array, or a subquery of rows."""
    query = sql.SQL("select {} from {}{}").format(COMMA.join(identifiers(columns)), table, condition)
    return sql.SQL("array({})").format(query) if len(columns) == 1 else query


def key_values(types: Mapping[str, str], text: sql.Composable) -> dict[str, sql.Composed]:
    """Return a mapping from each key column to the expression for its value in the aggregate_id `text`.

    `types` maps the columns to their types. The expressions fail if a part of `text` is not valid for its type.
    """
    if len(types) == 1:
        return {name: sql.SQL("{}::{}").format(text, sql.SQL(kind)) for name, kind in types.items()}
    return {
        name: UNESCAPED.format(text, sql.Literal(number), sql.SQL(kind))
        for number, (name, kind) in enumerate(types.items(), start=1)
    }


def has_all_parts(types: Mapping[str, str], text: sql.Composable) -> sql.Composed:
    """Return the condition that `text` has one part for each key column. The text of one column is not divided."""
    if len(types) == 1:
        return sql.SQL("true").format()
    return sql.SQL("cardinality(string_to_array({}, '/')) = {}").format(text, sql.Literal(len(types)))
