"""Topics and a database for the services under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.receiving.service import Service, provide_topic
from tests.integration.support import temporary_database

from outbox_events import filter_table, position_table, processed_table
from outbox_kit.stack import Stack

EFFECTS = """
create table effect (
  position bigint generated always as identity, consumer_group text, event_id text, aggregate_id text)"""


@pytest.fixture(scope="session")
def bootstrap(stack: Stack) -> str:
    state = stack.state()
    assert state is not None
    return state.kafka


@pytest.fixture(scope="session")
def service_dsn(source_dsn: str) -> Iterator[str]:
    """Yield the DSN of a database of the services."""
    with temporary_database(source_dsn, "receiving") as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(EFFECTS)
            connection.execute(processed_table.create_table_sql())
            connection.execute(position_table.create_table_sql())
            connection.execute(filter_table.create_table_sql())
        yield dsn


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def create_topic(bootstrap: str) -> Callable[..., str]:
    """Create topics, which remain until the stack is stopped."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(name: str = "", *, partitions: int = 3, **config: str) -> str:
        topic = name or f"receiving.{uuid4().hex[:8]}"
        provide_topic(admin, NewTopic(topic, partitions, 1, config=config))
        return topic

    return create


@pytest.fixture
def service(bootstrap: str, service_dsn: str, create_topic: Callable[..., str]) -> Service:
    """Return a service with a new topic of three partitions, and a new group."""
    return Service(bootstrap, service_dsn, create_topic())
