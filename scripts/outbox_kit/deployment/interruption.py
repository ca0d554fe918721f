"""Message after Ctrl-C: the state in which the connector was left, and the command that continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outbox_kit.connect.client import ConnectClient
from outbox_kit.errors import OutboxError
from outbox_kit.results.progress import Reporter


@contextmanager
def report_interruption(client: ConnectClient, connector: str, command: str, progress: Reporter) -> Iterator[None]:
    """When the body of the `with` statement is interrupted, report the connector's state. `command` continues it."""
    try:
        yield
    except KeyboardInterrupt:
        progress(f"{_state(client, connector)}; to continue, run `outbox {command}`")
        raise


def _state(client: ConnectClient, connector: str) -> str:
    try:
        status = client.status(connector)
    except OutboxError as error:
        return f"the state of connector {connector} is unknown ({error.message})"
    return f"connector {connector} {f'is {status.connector_state}' if status else 'does not exist'}"
