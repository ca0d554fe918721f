"""Root cause of a stack trace."""

from __future__ import annotations

import pytest
from tests.unit.connect_samples import TRACE

from outbox_kit.connect.task_errors import MAX_CHARACTERS, root_cause

# Traces of Kafka Connect 4.3 and Debezium 3.7, with fewer frames.
NO_SLOT = (
    "io.debezium.DebeziumException: Failed to start replication stream at LSN{0/1A2B3C4}\n"
    "\tat io.debezium.connector.postgresql.connection.PostgresReplicationConnection.startStreaming(X.java:1)\n"
    'Caused by: org.postgresql.util.PSQLException: ERROR: replication slot "library_outbox" does not exist\n'
    "  Hint: Create it first.\n"
    '  Where: slot "library_outbox", in the startup callback\n'
    "\tat org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2733)\n"
    "\t... 12 more\n"
)
REFUSED = (
    "org.apache.kafka.connect.errors.ConnectException: Could not connect\n\tat x\n"
    "Caused by: org.postgresql.util.PSQLException: Connection to db:5432 refused. Check the host\n"
    "\tat x\nCaused by: java.net.ConnectException: Connection refused\n\tat x\n"
)
CAUSE_WITHOUT_MESSAGE = "x.ConnectException: Error while polling\n\tat x\nCaused by: java.io.EOFException\n\tat x\n"
TOLERANCE = (
    "org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler\n\tat x\n"
    "Caused by: org.apache.kafka.connect.errors.DataException: Invalid JSON for record: Struct{a=s3cret}\n\tat"
)


@pytest.mark.parametrize(
    ("traces", "cause"),
    [
        ((), "no trace"),
        (("",), ""),
        ((TRACE,), "org.postgresql.util.PSQLException: ERROR: publication does not exist"),
        (("java.X: alone\n\tat y",), "java.X: alone"),
        (("java.X: alone",), "java.X: alone"),
        (("java.X: a\n\tSuppressed: java.Y\n\tCaused by: java.Z: of the suppressed\n",), "java.X: a"),
        ((TRACE, "java.X: another task's"), "org.postgresql.util.PSQLException: ERROR: publication does not exist"),
        (
            (NO_SLOT,),
            'org.postgresql.util.PSQLException: ERROR: replication slot "library_outbox" does not exist '
            "Hint: Create it first.",
        ),
        (
            (REFUSED,),
            "org.postgresql.util.PSQLException: Connection to db:5432 refused. Check the host",
        ),
        ((CAUSE_WITHOUT_MESSAGE,), "x.ConnectException: Error while polling (java.io.EOFException)"),
        ((TOLERANCE,), "org.apache.kafka.connect.errors.DataException: Invalid JSON for record: …"),
    ],
)
def test_returns_the_root_cause(traces: tuple[str, ...], cause: str) -> None:
    assert root_cause(traces) == cause


@pytest.mark.parametrize(
    "message",
    [
        'com.fasterxml.jackson.core.JsonParseException: Unexpected character at [Source: (byte[])"s3cret"; line: 1]',
        "x.DataException: Struct{id=1,payload=s3cret}",
        "x.SerializationException: cannot serialize SourceRecord{sourcePartition={server=x}, value=s3cret}",
        "org.postgresql.util.PSQLException: ERROR: new row violates a check\n  Detail: Failing row contains (s3cret).",
        "org.postgresql.util.PSQLException: ERROR: duplicate Key (id)=(s3cret) already exists.",
        "x.DataException: not valid: value: s3cret",
        'x.DataException: not valid: {\n  "a": "s3cret"}',
    ],
)
def test_removes_row_contents(message: str) -> None:
    for trace in (message, f"{message}\n\tat x", f"java.X: y\n\tat x\nCaused by: {message}\n\tat x"):
        actual = root_cause((trace,))
        assert "s3cret" not in actual
        assert actual.startswith(message[:20])


def test_keeps_placeholders() -> None:
    assert root_cause(("x.Y: cannot resolve ${env:NAME} in it",)) == "x.Y: cannot resolve ${env:NAME} in it"


def test_truncates_a_long_message() -> None:
    actual = root_cause(("x.Y: " + "a" * 5000,))
    assert len(actual) == MAX_CHARACTERS + 1
    assert actual.endswith("…")
