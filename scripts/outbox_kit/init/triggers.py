"""Write the SQL of triggers that send the states of aggregates whose service cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from psycopg import sql

from outbox_events.errors import ConfigurationError
from outbox_kit.init.aggregates import AggregateTables, Node
from outbox_kit.init.catalog import Table
from outbox_kit.init.state_view import link_condition, quoted, quoted_table, view_name
from outbox_kit.pipeline import Source
from outbox_kit.pipeline.key_columns import aggregate_id
from outbox_kit.postgres import ddl

BY_HAND = "write the triggers of this aggregate by hand"


@dataclass(frozen=True)
class TriggerTable:
    """A table of an aggregate, with SQL for the trigger function of its rows."""

    table: str
    function: str
    is_moved: str
    """Whether an update moves the row to another aggregate."""
    old: Owner
    new: Owner


@dataclass(frozen=True)
class Owner:
    """The aggregate of a row: the values of its key, and the FROM clause that they need (empty for its own row)."""

    key: str
    source: str


def check_triggers(aggregate: AggregateTables, source: Source) -> None:
    """Raise ConfigurationError if the triggers would not send all changes of the aggregate correctly."""
    if not source.uses_table or source.columns.model_dump() != type(source.columns)().model_dump():
        message = "--triggers requires an outbox table with the columns of docs/contract.md"
        raise ConfigurationError(message, "omit --triggers, and write the triggers by hand")
    for table in aggregate.root.tables():
        if table.has_heirs:
            message = f"aggregate {aggregate.name}: other tables inherit from {table.full_name}"
            raise ConfigurationError(f"{message}, and their changes would not fire its triggers", BY_HAND)
    for table, columns in _compared_columns(aggregate.root):
        for column in table.columns_named(columns):
            if not (column.type.is_builtin or column.type.labels):
                message = f"aggregate {aggregate.name}: column {column.name} of {table.full_name}"
                problem = f"has type {column.sql_type}, whose operators are not in the schema pg_catalog"
                raise ConfigurationError(f"{message} {problem}", BY_HAND)


def template_values(aggregate: AggregateTables, source: Source) -> dict[str, object]:
    """Return the values of the template triggers.sql.j2."""
    table, name = aggregate.root.table, aggregate.name
    types = {column.name: column.sql_type for column in table.columns}
    parameters = [f"${number}" for number, _ in enumerate(aggregate.key, start=1)]
    columns = [quoted(column) for column in aggregate.key]
    return {
        "name": name,
        "table": quoted_table(table),
        "view": ddl.quoted_text(view_name(aggregate)),
        "outbox_table": ddl.quoted_text(source.table),
        "emit": quoted(table.schema, f"{name}_outbox_emit"),
        "refuse": quoted(table.schema, f"{name}_outbox_refuse_truncate"),
        "parameters": [types[column] for column in aggregate.key],
        "condition": " and ".join(f"{column} = {value}" for column, value in zip(columns, parameters, strict=True)),
        "aggregate_id": aggregate_id([sql.SQL(value) for value in parameters]).as_string(None),
        "has_parts": bool(aggregate.root.children),
        "tables": list(_tables(aggregate, [aggregate.root], count(1))),
    }


def _compared_columns(node: Node) -> Iterator[tuple[Table, tuple[str, ...]]]:
    """Yield the columns that the functions compare: the key of the aggregate, and the columns that link its parts."""
    if node.link is None:
        yield node.table, node.table.keys[0]
    for child in node.children:
        if child.link is not None:
            yield node.table, child.link.parent_columns
            yield child.table, child.link.columns
        yield from _compared_columns(child)


def _tables(aggregate: AggregateTables, path: Sequence[Node], numbers: count[int]) -> Iterator[TriggerTable]:
    """Yield the last table of `path`, which begins with the first table of the aggregate, and the parts of its rows."""
    table, link = path[-1].table, path[-1].link
    function = quoted(aggregate.root.table.schema, f"{aggregate.name}_outbox_{next(numbers)}")
    moved = [quoted(column) for column in (aggregate.key if link is None else link.columns)]
    is_moved = " or ".join(f"new.{column} is distinct from old.{column}" for column in moved)
    old, new = (_owner(aggregate, path, row) for row in ("old", "new"))
    yield TriggerTable(quoted_table(table), function, is_moved, old, new)
    for child in path[-1].children:
        yield from _tables(aggregate, [*path, child], numbers)


def _owner(aggregate: AggregateTables, path: Sequence[Node], row: str) -> Owner:
    """Return the aggregate of `row`, a row of the last table of `path`."""
    if len(path) == 1:
        return Owner(", ".join(f"{row}.{quoted(column)}" for column in aggregate.key), "")
    joined = f"{quoted_table(path[0].table)} as t1"
    for number, node in enumerate(path[1:-1], start=2):
        condition = link_condition(node, f"t{number}", f"t{number - 1}")
        joined += f" join {quoted_table(node.table)} as t{number} on {condition}"
    source = f"from {joined} where {link_condition(path[-1], row, f't{len(path) - 1}')}"
    return Owner(", ".join(f"t1.{quoted(column)}" for column in aggregate.key), source)
