"""Decide which errors leave a sender unusable."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka import KafkaException

from outbox_events import RefusedError, UnknownOutcomeError
from outbox_events.producing.supervised_sender import leaves_unusable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnknownOutcomeError("m"), True),
        (RefusedError("the Kafka transaction cannot begin"), True),
        (KafkaException(), True),
        (psycopg.OperationalError("the connection is closed"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (KeyboardInterrupt(), True),
        (psycopg.errors.UniqueViolation(), False),
        (psycopg.errors.DeadlockDetected(), False),
        (psycopg.errors.QueryCanceled(), False),
        (KeyError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_that_leave_a_sender_unusable(error: BaseException, expected: bool) -> None:
    assert leaves_unusable(error) is expected
