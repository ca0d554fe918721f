"""Build tables as `read_tables` returns them."""

from __future__ import annotations

from outbox_kit.init.catalog import Column, ColumnType, ForeignKey, Table


def column(name: str, type_name: str = "int8", *, nullable: bool = False, **values: object) -> Column:
    """Return a column. `values` are those of its type."""
    column_type = ColumnType(type_name, **values)  # type: ignore[arg-type]
    return Column(name, column_type, nullable, type_name)


def key(
    columns: str, parent: str, parent_columns: str = "id", *, name: str = "fk", cascades: bool = False
) -> ForeignKey:
    """Return a foreign key. Columns are separated by spaces."""
    return ForeignKey(name, tuple(columns.split()), parent, tuple(parent_columns.split()), cascades)


def table(
    name: str, columns: str = "id", primary: str = "id", foreign: tuple[ForeignKey, ...] = (), nullable: str = ""
) -> Table:
    """Return a table of the schema shop. Columns are separated by spaces."""
    fields = tuple(column(entry, nullable=entry in nullable.split()) for entry in columns.split())
    return Table("shop", name, fields, (tuple(primary.split()),) if primary else (), foreign)


def by_name(*tables: Table) -> dict[str, Table]:
    return {entry.full_name: entry for entry in tables}
