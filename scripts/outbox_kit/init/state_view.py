"""Write the SQL of an aggregate's state view, which the service and the backfill share."""

from __future__ import annotations

import textwrap

from psycopg import sql

from outbox_kit.init.aggregates import VIEW_SUFFIX, AggregateTables, Node
from outbox_kit.init.catalog import Table
from outbox_kit.init.fields import Field, RecordFields, state_fields
from outbox_kit.pipeline.key_columns import identifiers
from outbox_kit.postgres import ddl

MARK = "outbox-kit: state of aggregate type {name}"
"""Comment of a view, which distinguishes it from views of others."""
HEAD = (
    "State of each aggregate of type {name}: the one definition that the service, `outbox backfill` and `outbox verify "
    "--states` share. Run this file as the owner of the tables, or add it to your migrations. "
)
EVENT_AFTER_CHANGES = "A transaction must write the event after its changes."
LOCK_OF_PARTS = (
    " If it changes a row of {parts}, it must first lock the row of {root} (select ... for no key update), so that the "
    "newest event has the newest state."
)
VIEW = """\
create or replace view {view} as
select {key},
       to_jsonb(state.*) as payload
from {table} as {alias}
cross join lateral (
{fields}
) as state;
comment on view {view} is {mark};
"""
KEY_QUERY = sql.SQL("select {key}::text as aggregate_id, payload from {view} where {key} = any(:keys)")
KEYS_QUERY = sql.SQL("select {key}, payload from {view} where ({key}) = any(:keys)")
PART = """\
coalesce((
  select jsonb_agg(to_jsonb(part.*) order by {order})
  from {table} as {alias}
  cross join lateral (
{fields}
  ) as part
  where {condition}
), '[]')"""
SINGLE_PART = """\
(
  select to_jsonb(part.*)
  from {table} as {alias}
  cross join lateral (
{fields}
  ) as part
  where {condition}
)"""


def view_name(aggregate: AggregateTables) -> str:
    """Return the name of the view, as schema.name."""
    return f"{aggregate.root.table.schema}.{aggregate.name}{VIEW_SUFFIX}"


def create_view(aggregate: AggregateTables) -> str:
    """Return the statement that creates or replaces the view."""
    record, table = state_fields(aggregate), aggregate.root.table
    parts = " or ".join(part.full_name for part in aggregate.root.tables() if part is not table)
    lock = LOCK_OF_PARTS.format(parts=parts, root=table.full_name) if parts else ""
    return as_comment(HEAD.format(name=aggregate.name) + EVENT_AFTER_CHANGES + lock) + VIEW.format(
        mark=sql.Literal(MARK.format(name=aggregate.name)).as_string(None),
        view=ddl.quoted_text(view_name(aggregate)),
        key=", ".join(_column(record.alias, column) for column in aggregate.key),
        alias=record.alias,
        table=quoted_table(aggregate.root.table),
        fields=_fields(record, "  "),
    )


def backfill_query(aggregate: AggregateTables) -> str:
    """Return the query of `backfill`, which reads the view."""
    view, key = ddl.qualified_name(view_name(aggregate)), identifiers(aggregate.key)
    form = KEY_QUERY if len(key) == 1 else KEYS_QUERY
    return form.format(key=sql.SQL(", ").join(key), view=view).as_string(None)


def as_comment(text: str) -> str:
    """Return the text as lines of an SQL comment."""
    return "".join(f"-- {line}\n" for line in textwrap.wrap(text, 116, break_on_hyphens=False))


def _fields(record: RecordFields, indent: str) -> str:
    lines = [f"{_value(record, field)} as {quoted(field.name)}" for field in record.fields]
    return textwrap.indent(f"select {textwrap.indent(f',{chr(10)}'.join(lines), '       ').lstrip()}", indent)


def _value(record: RecordFields, field: Field) -> str:
    part = field.content
    if not isinstance(part, RecordFields):
        return part.as_string(None)
    form = SINGLE_PART if part.node.is_single else PART
    return form.format(
        order=_order(part),
        table=quoted_table(part.node.table),
        alias=part.alias,
        fields=_fields(part, "    "),
        condition=link_condition(part.node, part.alias, record.alias),
    )


def link_condition(node: Node, alias: str, parent_alias: str) -> str:
    """Return the condition that a row of a part belongs to a row of the enclosing table."""
    if node.link is None:
        raise ValueError("the first table of an aggregate is not a part")
    pairs = zip(node.link.columns, node.link.parent_columns, strict=True)
    return " and ".join(f"{_column(alias, own)} = {_column(parent_alias, referenced)}" for own, referenced in pairs)


def _order(part: RecordFields) -> str:
    """Return the order of the rows: by their key, or by their text if they have none."""
    keys = part.node.table.keys
    if not keys:
        return f"{part.alias}::text"
    return ", ".join(_column(part.alias, column) for column in keys[0])


def quoted_table(table: Table) -> str:
    """Return the name of a table with its schema, in quotes."""
    return quoted(table.schema, table.name)


def _column(alias: str, name: str) -> str:
    return f"{alias}.{quoted(name)}"


def quoted(*parts: str) -> str:
    """Return a name, or a name with its schema, in quotes."""
    return sql.Identifier(*parts).as_string(None)
