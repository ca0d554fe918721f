"""Fixtures of the tests: PostgreSQL, Kafka, Connect with Debezium and a registry, in containers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from shop.shipping import Shipping
from shop.tables import TABLES

from outbox_kit.testing import OutboxStack

pytest_plugins = ["outbox_kit.testing.fixtures"]


@pytest.fixture(scope="session")
def outbox_pipeline() -> Path:
    """Pipeline that the fixture `outbox_stack` applies."""
    return Path(__file__).parents[1] / "connectors" / "shop.yaml"


@pytest.fixture(scope="session")
def dsn(outbox_stack: OutboxStack) -> str:
    """Create the service's tables; return the connection string of its database."""
    with psycopg.connect(outbox_stack.source_dsn) as connection:
        connection.execute(TABLES)
    return outbox_stack.source_dsn


@pytest.fixture
def shipping(dsn: str, outbox_stack: OutboxStack) -> Iterator[Shipping]:
    """Return a consumer with the settings of the service."""
    consumer = Shipping(dsn, outbox_stack.bootstrap_servers, outbox_stack.registry_url)
    yield consumer
    consumer.close()
