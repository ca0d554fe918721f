"""Write the SQL of triggers that send the states of aggregates whose service cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from outbox_kit.init.aggregates import AggregateTables, Node
from outbox_kit.init.state_view import quoted, view_name
from outbox_kit.pipeline.key_columns import aggregate_id
from outbox_kit.postgres import ddl


@dataclass(frozen=True)
class TriggerTable:
    """A table of an aggregate. `owners` is the FROM clause that finds the aggregate of a row, with `{row}` for it."""

    table: str
    function: str
    moved: tuple[str, ...]
    """Columns whose change moves the row to another aggregate."""
    owner_key: tuple[str, ...]
    owners: str

    def emits(self, row: str) -> str:
        """Return the statement's arguments and FROM clause for the aggregate of the row `old` or `new`."""
        return f"({', '.join(key.format(row=row) for key in self.owner_key)}){self.owners.format(row=row)}"


def template_values(aggregate: AggregateTables, outbox_table: str) -> dict[str, object]:
    """Return the values of the template triggers.sql.j2."""
    table, name = aggregate.root.table, aggregate.name
    types = {column.name: column.sql_type for column in table.columns}
    parameters = [f"${number}" for number, _ in enumerate(aggregate.key, start=1)]
    columns = [quoted(column) for column in aggregate.key]
    return {
        "name": name,
        "table": quoted(table.schema, table.name),
        "view": ddl.quoted_text(view_name(aggregate)),
        "outbox_table": ddl.quoted_text(outbox_table),
        "emit": quoted(table.schema, f"{name}_emit"),
        "refuse": quoted(table.schema, f"{name}_refuse_truncate"),
        "parameters": [types[column] for column in aggregate.key],
        "condition": " and ".join(f"{column} = {value}" for column, value in zip(columns, parameters, strict=True)),
        "aggregate_id": aggregate_id([sql.SQL(value) for value in parameters]).as_string(None),
        "has_parts": bool(aggregate.root.children),
        "tables": list(_tables(aggregate, [aggregate.root])),
    }


def _tables(aggregate: AggregateTables, path: Sequence[Node]) -> Iterator[TriggerTable]:
    """Yield the last table of `path`, which begins with the first table of the aggregate, and the parts of its rows."""
    table, link = path[-1].table, path[-1].link
    moved = aggregate.key if link is None else link.columns
    function = quoted(aggregate.root.table.schema, f"{aggregate.name}_outbox_{len(path)}_{table.name}"[:63])
    key = [quoted(column) for column in aggregate.key]
    if link is None:
        owner_key, owners = tuple(f"{{row}}.{column}" for column in key), ""
    else:
        owner_key, owners = tuple(f"t1.{column}" for column in key), f" from {_from(path)}"
    columns = tuple(quoted(column) for column in moved)
    yield TriggerTable(quoted(table.schema, table.name), function, columns, owner_key, owners)
    for child in path[-1].children:
        yield from _tables(aggregate, [*path, child])


def _from(path: Sequence[Node]) -> str:
    """Return the tables from the first to the one that contains the part, joined, and the condition on the part."""
    joined = f"{quoted(path[0].table.schema, path[0].table.name)} as t1"
    for number, node in enumerate(path[1:-1], start=2):
        condition = _pairs(node, f"t{number}", f"t{number - 1}")
        joined += f" join {quoted(node.table.schema, node.table.name)} as t{number} on {condition}"
    return f"{joined} where {_pairs(path[-1], '{row}', f't{len(path) - 1}')}"


def _pairs(node: Node, own: str, parent: str) -> str:
    if node.link is None:
        raise ValueError("the first table of an aggregate is not a part")
    pairs = zip(node.link.columns, node.link.parent_columns, strict=True)
    return " and ".join(f"{own}.{quoted(column)} = {parent}.{quoted(other)}" for column, other in pairs)
