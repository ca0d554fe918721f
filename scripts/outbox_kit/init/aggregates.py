"""Group tables into aggregates: a table with one row per aggregate, and the tables of its parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from outbox_events.errors import ConfigurationError
from outbox_kit.init.catalog import ForeignKey, Table
from outbox_kit.pipeline.model import RESERVED_TYPES
from outbox_kit.pipeline.names import Identifier, QualifiedTable

FORM = "NAME=TABLE[,TABLE...], as in order=shop.orders,shop.order_line"
MAX_NAME_LENGTH = 41
VIEW_SUFFIX = "_state"
AGGREGATE_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{MAX_NAME_LENGTH - 1}}}")
"""Name of an aggregate that `init` accepts. It is also part of names of views, files, topics and target tables."""
SESSION_TYPES = frozenset({"timestamptz", "timetz", "interval", "money", "bytea"})
"""Types whose text depends on settings of the session, so that the same key would have several texts."""
# Tables of outbox-kit, and of migration tools.
OTHER_TABLES = re.compile(
    r"(outbox_(event|backfill|offsets|relay|relay_batch|relay_progress)|processed_event|consumer_offset|event_filter"
    r"|unproven_record|recovery_store|alembic_version|django_migrations|flyway_schema_history|databasechangelog(lock)?"
    r"|schema_migrations|_prisma_migrations|knex_migrations(_lock)?|__efmigrationshistory)"
)
ODD_NAME = "its name, or the name of a column, has control characters"
IS_TABLE, IS_COLUMN = TypeAdapter(QualifiedTable).validate_python, TypeAdapter(Identifier).validate_python


@dataclass(frozen=True)
class Node:
    """A table of an aggregate. `link` is the foreign key to the enclosing table, or None for the first table."""

    table: Table
    link: ForeignKey | None = None
    children: tuple[Node, ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether a row of the enclosing table has at most one row of this table."""
        return self.link is not None and any(set(key) <= set(self.link.columns) for key in self.table.keys)

    def tables(self) -> Iterator[Table]:
        """Yield this table and the tables of its parts."""
        yield self.table
        for child in self.children:
            yield from child.tables()


@dataclass(frozen=True)
class AggregateTables:
    """The tables of one aggregate type. `root` contains one row per aggregate."""

    name: str
    root: Node

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify the aggregate."""
        return self.root.table.keys[0]

    @property
    def option(self) -> str:
        """Value of --aggregate that describes this aggregate."""
        return f"{self.name}={','.join(table.full_name for table in self.root.tables())}"


def parse(options: Iterable[str], tables: Mapping[str, Table]) -> list[AggregateTables]:
    """Return the aggregates of the options, which have the form FORM. Raises ConfigurationError."""
    aggregates: dict[str, AggregateTables] = {}
    for option in options:
        name, separator, names = option.partition("=")
        if not separator or AGGREGATE_NAME.fullmatch(name) is None or name in RESERVED_TYPES:
            hint = f"use {FORM}; NAME has lower-case letters, digits and underscores, and is part of the topic's name"
            raise ConfigurationError(f"--aggregate {option!r} has no valid name", hint)
        if name in aggregates:
            raise ConfigurationError(f"--aggregate {name} is given twice", "list all tables of the aggregate at once")
        aggregates[name] = AggregateTables(name, _tree(name, [_find(part, tables) for part in names.split(",")]))
    return list(aggregates.values())


def propose(tables: Mapping[str, Table], taken: Collection[str] = ()) -> list[AggregateTables]:
    """Return a proposal: each table belongs to the table that it is part of, or is an aggregate of its own.

    Tables that `unusable` reports, and tables of migration tools and of outbox-kit, are omitted. A view does not get
    one of the names `taken`, which have the form schema.name.
    """
    usable = {name: table for name, table in tables.items() if not _is_other(table) and unusable(table) is None}
    referenced = {
        key.parent for table in usable.values() for key in table.foreign_keys if key.parent != table.full_name
    }
    owners = {name: _owner(table, usable, name in referenced) for name, table in usable.items()}
    members: dict[str, list[Table]] = {}
    for name, table in usable.items():
        members.setdefault(_root(name, owners), []).append(table)
    names = _names(members, taken)
    return [
        AggregateTables(names[root], _tree(names[root], sorted(group, key=lambda table: table.full_name != root)))
        for root, group in members.items()
    ]


def skipped(tables: Mapping[str, Table]) -> dict[str, str]:
    """Return a mapping from each table that cannot be the first of an aggregate to the reason.

    Tables of migration tools and of outbox-kit are omitted.
    """
    reasons = {name: unusable(table) for name, table in tables.items() if not _is_other(table)}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def unusable(table: Table) -> str | None:
    """Return the reason why a table cannot be the first table of an aggregate, or None."""
    if _has_odd_name(table):
        return ODD_NAME
    if not table.keys:
        return "it has no primary key, and no unique index on columns that cannot be null"
    try:
        IS_TABLE(table.full_name)
        for column in table.keys[0]:
            IS_COLUMN(column)
    except ValidationError:
        return "its name, or the name of a key column, has characters other than letters, digits and underscores"
    if "payload" in table.keys[0]:
        return "a key column is named payload, like the state in the view"
    if any(column.type.name in SESSION_TYPES for column in table.columns_named(table.keys[0])):
        return "the text of a key column depends on settings of the session, such as the time zone"
    return None


def _has_odd_name(table: Table) -> bool:
    names = (table.schema, table.name, *(column.name for column in table.columns))
    return not all(name.isprintable() for name in names)


def _find(name: str, tables: Mapping[str, Table]) -> Table:
    if name in tables:
        return tables[name]
    matches = [table for full_name, table in tables.items() if full_name.lower() == f"public.{name}".lower()]
    if len(matches) == 1:
        return matches[0]
    similar = [full_name for full_name in tables if name.lower().rpartition(".")[2] in full_name.lower()]
    hint = f"choose one of: {', '.join(similar or tables)}" if tables else "create the tables first"
    raise ConfigurationError(f"no table {name!r}; names are case-sensitive", hint)


def _tree(name: str, tables: Sequence[Table]) -> Node:
    """Return the first table with the others below it, each at the foreign key to the table that it is part of."""
    root, *rest = tables
    reason = unusable(root)
    if reason is not None:
        raise ConfigurationError(f"aggregate {name}: table {root.full_name}: {reason}", "choose another first table")
    if odd := next(filter(_has_odd_name, rest), None):
        raise ConfigurationError(f"aggregate {name}: table {odd.full_name!r}: {ODD_NAME}", "remove this table")
    names = {table.full_name for table in tables}
    if len(names) < len(tables):
        raise ConfigurationError(f"aggregate {name}: a table is given twice", "list each table once")
    if other := next(filter(_is_other, tables), None):
        message = f"aggregate {name}: {other.full_name} is a table of outbox-kit or of a migration tool"
        raise ConfigurationError(message, "remove this table")
    parts = {table.full_name: (table, _link(name, table, names)) for table in rest if table is not root}
    node = _node(root, None, parts)
    unreachable = parts.keys() - {table.full_name for table in node.tables()}
    if unreachable:
        message = f"aggregate {name}: no foreign keys lead from {', '.join(sorted(unreachable))} to {root.full_name}"
        raise ConfigurationError(message, "add the tables in between, or remove these tables")
    return node


def _node(table: Table, link: ForeignKey | None, parts: Mapping[str, tuple[Table, ForeignKey]]) -> Node:
    children = [(part, key) for part, key in parts.values() if key.parent == table.full_name]
    return Node(table, link, tuple(_node(child, key, parts) for child, key in children))


def _link(name: str, table: Table, names: Collection[str]) -> ForeignKey:
    """Return the foreign key to the table in `names` that `table` is most probably part of."""
    keys = sorted(_references(table, names), key=lambda key: _rank(table, key))
    if not keys:
        message = f"aggregate {name}: {table.full_name} has no foreign key to another table of the aggregate"
        raise ConfigurationError(message, f"remove {table.full_name}, or name it as an aggregate of its own")
    if len(keys) > 1 and _rank(table, keys[0]) == _rank(table, keys[1]):
        names_of_keys = " and ".join(f"{key.name} ({', '.join(key.columns)})" for key in keys[:2])
        message = f"aggregate {name}: {table.full_name} could be part of its aggregate by {names_of_keys}"
        raise ConfigurationError(message, "remove this table, and add its rows to the view in sql/ by hand")
    return keys[0]


def _references(table: Table, names: Collection[str]) -> list[ForeignKey]:
    return [key for key in table.foreign_keys if key.parent in names and key.parent != table.full_name]


def _rank(table: Table, key: ForeignKey) -> tuple[bool, bool, bool, int, int]:
    """Return a value that is lower the more probable it is that a row of `table` is part of the referenced row."""
    own_key = table.keys[0] if table.keys else ()
    in_key = set(key.columns) <= set(own_key)
    position = own_key.index(key.columns[0]) if in_key else 0
    return table.nullable(key.columns), not in_key, not key.cascades, -len(key.columns), position


def _owner(table: Table, usable: Collection[str], is_referenced: bool) -> str | None:
    """Return the table whose part `table` seems to be.

    This is the table whose key is part of the table's own key, or the only table whose deletion deletes the rows.
    """
    required = [key for key in _references(table, usable) if not table.nullable(key.columns)]
    in_key = [key for key in required if set(key.columns) <= set(table.keys[0])]
    if in_key:
        best = min(_rank(table, key) for key in in_key)
        parents = [key.parent for key in in_key if _rank(table, key) == best]
        return parents[0] if len(parents) == 1 else None
    cascading = [key for key in required if key.cascades]
    return cascading[0].parent if len(cascading) == 1 and not is_referenced else None


def _root(name: str, owners: Mapping[str, str | None]) -> str:
    visited = [name]
    while (owner := owners[visited[-1]]) is not None and owner not in visited:
        visited.append(owner)
    return name if owner is not None else visited[-1]


def _names(members: Mapping[str, Sequence[Table]], taken: Collection[str]) -> dict[str, str]:
    """Return a unique name for the aggregate of each root: that of the table, with the schema if several have it."""
    roots = {root: next(table for table in group if table.full_name == root) for root, group in members.items()}
    counts = Counter(_name(table.name) for table in roots.values())
    names: dict[str, str] = {}
    for root, table in roots.items():
        is_unique = counts[_name(table.name)] == 1
        name = _name(table.name if is_unique else f"{table.schema}_{table.name}")
        prefix = f"{table.schema}."
        views = (view for view in taken if view.startswith(prefix) and view.endswith(VIEW_SUFFIX))
        blocked = {view.removeprefix(prefix).removesuffix(VIEW_SUFFIX) for view in views}
        names[root] = unique_name(name, {*names.values(), *RESERVED_TYPES, *blocked}, MAX_NAME_LENGTH)
    return names


def unique_name(name: str, taken: Collection[str], max_length: int) -> str:
    """Return the name, shortened to `max_length` and numbered if it is taken, regardless of case."""
    lower, number, candidate = {entry.lower() for entry in taken}, 1, name[:max_length]
    while candidate.lower() in lower:
        number += 1
        suffix = f"_{number}"
        candidate = f"{name[: max_length - len(suffix)]}{suffix}"
    return candidate


def _name(table: str) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", table).lower())
    return (name if name[0].isalpha() else f"t_{name}")[:MAX_NAME_LENGTH]


def _is_other(table: Table) -> bool:
    return OTHER_TABLES.fullmatch(table.name.lower()) is not None
