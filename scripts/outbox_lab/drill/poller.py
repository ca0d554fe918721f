"""Poll an outbox table by an incrementing column, and send the rows to Kafka. This module runs as a process.

    python -m outbox_lab.drill.poller SETTINGS.json

Like JDBC source connectors, the process stores its position after the rows are delivered, so rows are sent at least
once. The process ends after any error, and continues at the stored position when it is restarted. The relay reads rows
in a different order. This module measures the alternative, with and without its known gap (docs/relay.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

from confluent_kafka import Producer
from psycopg import sql

from outbox_events import Deliveries
from outbox_events.contract.partitioner import partition_of
from outbox_events.errors import ConfigurationError
from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_kit.deployment import Deployment, open_deployment
from outbox_kit.encoding import RecordEncoder
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline.overrides import Overrides
from outbox_kit.postgres import client, ddl
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import ORDER_COLUMN, RelayTables
from outbox_lab.drill.components import read_settings
from outbox_lab.drill.project import ENVIRONMENT

# The relay polls at the same interval. JDBC source connectors poll every 5 seconds by default.
INTERVAL_S = 0.1
ADD_ORDER = sql.SQL("""
    alter table {outbox} add if not exists {order} bigint generated always as identity;
    create index if not exists {index} on {outbox} ({order});
    create table if not exists drill.position (outbox text primary key, transaction bigint, place bigint)""")
READ_POSITION: LiteralString = "select transaction, place from drill.position where outbox = %s"
WRITE_POSITION: LiteralString = """
    insert into drill.position values (%s, %s, %s)
    on conflict (outbox) do update set transaction = excluded.transaction, place = excluded.place"""
# In HORIZON, the second condition skips a row until all transactions with lower ids have ended. Rows are read in the
# order of transaction ids, so no row with a lower position can become visible after a row has been read.
NAIVE = sql.SQL("select {columns}, {order} as place from {outbox} where {order} > %s order by {order} limit %s")
HORIZON = sql.SQL("""
    select {columns}, {order} as place, (xmin::text)::bigint as transaction from {outbox}
    where (xmin::text::bigint, {order}) > (%s, %s)
      and xmin::text::bigint < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295)
    order by xmin::text::bigint, {order} limit %s""")


@dataclass(frozen=True)
class PollerSettings:
    """Settings of the process. `port` is the port through which the process connects to PostgreSQL."""

    pipeline_file: str
    port: int
    horizon: bool


@dataclass(frozen=True, slots=True)
class Position:
    """Transaction id and number of the last row that was read. Only a poller with `horizon` uses the transaction id."""

    transaction: int = 0
    place: int = 0


@dataclass
class IncrementingPoller:
    """Reads the rows after `position`, the position of the last row that was read. Misses no row if `horizon` is True.

    The transaction ids in `xmin` have 32 bits, so `horizon` requires that transaction ids do not wrap around.
    """

    connection: Connection
    outbox: str
    columns: sql.Composable
    horizon: bool
    position: Position = Position()

    def poll(self, limit: int = 1000) -> list[Row]:
        """Return the next rows, and set `position` to the position of the last row."""
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


def prepare(connection: Connection, outbox: str) -> None:
    """Add the incrementing column to the outbox table, and create the table that stores positions."""
    table = outbox.split(".")[1]
    connection.execute(
        ADD_ORDER.format(
            outbox=ddl.qualified_name(outbox),
            order=sql.Identifier(ORDER_COLUMN),
            index=sql.Identifier(f"{table}_{ORDER_COLUMN}"),
        )
    )


def run(deployment: Deployment, *, horizon: bool) -> None:
    """Send rows until the process is stopped. Raises UnreachableError, RejectedError or NotDeliveredError."""
    lock = deployment.lock()
    if lock is None:
        raise ConfigurationError(f"lock file {deployment.lock_file} does not exist", "run `outbox apply`")
    outbox = deployment.pipeline.source.table
    encoder = RecordEncoder(deployment.pipeline, lock, partition_of)
    deliveries = Deliveries(
        Producer({**client_settings(deployment.environment.kafka), **PRODUCER_SETTINGS, "linger.ms": 5})
    )
    with client.connected(deployment.environment.source) as connection:
        tables = RelayTables(deployment.pipeline, marks=False)
        reader = RowReader(tables, client.read_column_types(connection, outbox))
        poller = IncrementingPoller(connection, outbox, reader.columns, horizon, _position(connection, outbox))
        while True:
            rows = poller.poll()
            for row in rows:
                deliveries.send(encoder.encode(reader.outbox_row(row), f"0001_{row['place']:016x}-{0:016x}"))
            if not rows:
                time.sleep(INTERVAL_S)
                continue
            deliveries.wait()
            connection.execute(WRITE_POSITION, (outbox, poller.position.transaction, poller.position.place))


def _position(connection: Connection, outbox: str) -> Position:
    found = connection.execute(READ_POSITION, (outbox,)).fetchone()
    return Position(**found) if found else Position()


def main(settings: PollerSettings) -> None:
    """Open the pipeline, and send its rows until the process is stopped."""
    port = Overrides(options=(f"environment.source.port={settings.port}",))
    with open_deployment(Path(settings.pipeline_file), ENVIRONMENT, port) as deployment:
        run(deployment, horizon=settings.horizon)


if __name__ == "__main__":
    main(read_settings(PollerSettings))
