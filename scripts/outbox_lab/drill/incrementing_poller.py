"""Polling of an incrementing column, as JDBC source connectors do, with and without its known hole.

The relay does not use this order. The module exists to measure and to explain the alternative (docs/relay.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.relay.tables import ORDER_COLUMN

# The second condition holds a row back while a transaction that began before its own has not ended. Rows of a
# transaction are read in the order of its id, so a row that commits later cannot have a lower place.
NAIVE = sql.SQL("select {columns}, {order} as place from {outbox} where {order} > %s order by {order} limit %s")
HORIZON = sql.SQL("""
    select {columns}, {order} as place, (xmin::text)::bigint as transaction from {outbox}
    where (xmin::text::bigint, {order}) > (%s, %s)
      and xmin::text::bigint < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295)
    order by xmin::text::bigint, {order} limit %s""")


@dataclass(frozen=True, slots=True)
class Position:
    """The last row that was read: the id of its transaction, which only `horizon` uses, and its number."""

    transaction: int = 0
    place: int = 0


@dataclass
class IncrementingPoller:
    """Reads rows after `position`, the last one that it has read. With `horizon`, no row is missed.

    The transaction ids of `xmin` have 32 bits, so `horizon` is for tables whose rows are younger than a wraparound.
    """

    connection: Connection
    outbox: str
    columns: sql.Composable
    horizon: bool
    position: Position = Position()

    def poll(self, limit: int = 1000) -> list[Row]:
        """Return the next rows, and remember the last one."""
        names = {
            "columns": self.columns,
            "order": sql.Identifier(ORDER_COLUMN),
            "outbox": ddl.qualified_name(self.outbox),
        }
        last = self.position
        if self.horizon:
            rows = self.connection.execute(HORIZON.format(**names), (last.transaction, last.place, limit)).fetchall()
        else:
            rows = self.connection.execute(NAIVE.format(**names), (last.place, limit)).fetchall()
        if rows:
            self.position = Position(rows[-1].get("transaction", 0), rows[-1]["place"])
        return rows
