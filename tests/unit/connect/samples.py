"""A connector in the states that tests look at."""

from __future__ import annotations

from outbox_kit.connect.client import ConnectorStatus

PLUGIN = "io.debezium.connector.postgresql.PostgresConnector"
ROUTER = "io.outboxkit.smt.OutboxRouter"
DESIRED = {"connector.class": PLUGIN, "transforms.outbox.type": ROUTER, "database.password": "${env:X}"}
SEED = {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}
SEEDED = [{"partition": {"server": "library"}, "offset": SEED}]
MOVED = [{"partition": {"server": "library"}, "offset": {**SEED, "lsn": 9}}]
# As Debezium 3 commits it: the seed's keys and its own.
COMMITTED = [{"partition": {"server": "library"}, "offset": {**SEED, "txId": 7, "ts_usec": 1, "messageType": "INSERT"}}]
NULL = [{"partition": {"server": "library"}, "offset": None}]
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
STOPPED = ConnectorStatus("STOPPED", (), ())
