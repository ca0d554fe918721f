"""Errors of servers that do not respond or reject the login."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.integration.materialization.warehouse import warehouse

from outbox_events.errors import UnreachableError
from outbox_kit.stack import StackState
from outbox_spark.kafka import offset_ranges
from outbox_spark.kafka.offset_ranges import NoResponseError, TopicAdmin
from outbox_spark.sinks.postgres.connection import read_only_connection


def test_a_wrong_password_leads_to_the_variable_that_contains_it(state: StackState) -> None:
    target = structs.replace(warehouse(state), password="wrong")
    with (
        pytest.raises(UnreachableError, match="password authentication failed") as caught,
        read_only_connection(target),
    ):
        pass
    assert "environment variable" in caught.value.hint


def test_brokers_that_do_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_ranges, "REQUEST_SECONDS", 1.0)
    with pytest.raises(NoResponseError, match=r"127\.0\.0\.1:1"):
        TopicAdmin({"bootstrap.servers": "127.0.0.1:1"}).describe("any")
