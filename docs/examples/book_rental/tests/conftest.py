"""Fixtures of the tests: the stack in containers, both pipelines, and a service of deposits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from book_management.tables import TABLES, connect
from book_rental.migration import migrate
from book_rental.settings import Settings
from deposit_server import DepositServer

from outbox_kit.testing import OutboxStack

pytest_plugins = ["outbox_kit.testing.fixtures"]
EXAMPLES = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def deposits() -> Iterator[DepositServer]:
    """Run the service of deposits."""
    with DepositServer() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


@pytest.fixture(scope="session")
def settings(outbox_stack: OutboxStack, deposits: DepositServer) -> Settings:
    """Deploy the pipelines of both services, and create their tables; return the settings of the service."""
    outbox_stack.apply(EXAMPLES / "book_management" / "connectors" / "books.yaml")
    outbox_stack.apply(EXAMPLES / "book_rental" / "connectors" / "rental.yaml")
    with connect(outbox_stack.source_dsn) as connection:
        connection.execute(TABLES)
    settings = Settings(
        outbox_stack.source_dsn,
        outbox_stack.bootstrap_servers,
        outbox_stack.registry_url,
        deposits.url,
    )
    migrate(settings)
    return settings
