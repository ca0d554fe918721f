"""Execution of the planned changes of a connector."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.changes import Change
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.config_diff import different_keys
from outbox_kit.connect.confirmed_writes import send_request, write_confirmed
from outbox_kit.connect.lifecycle import is_paused_or_stopped, put_config, remove, stop, wait_stopped
from outbox_kit.connect.offset_seeding import StartPosition, ensure_offset
from outbox_kit.connect.state import INSTALL_HINT, State, missing_plugins
from outbox_kit.errors import OutboxKitError, RefusedError
from outbox_kit.progress import Reporter, silent


def refuse_missing_plugins(client: ConnectClient, config: dict[str, str]) -> None:
    """Raise RefusedError if a class in the config is not installed on the worker."""
    missing = missing_plugins(config, list(client.plugin_versions()))
    if missing:
        raise RefusedError(f"the Connect worker at {client.url} lacks plugin {', '.join(missing)}", INSTALL_HINT)


def refuse_invalid(client: ConnectClient, name: str, config: dict[str, str], *, progress: Reporter = silent) -> None:
    """Validate the config on the worker before it is written. Raises RefusedError."""
    # Debezium's validation connects to the database: an unreachable database delays the response.
    progress("validate the connector config on the worker")
    validation = client.validate(name, config)
    if validation.unresolved:
        raise RefusedError(
            f"the Connect worker does not resolve the placeholder in {', '.join(validation.unresolved)}",
            "check the worker's config.providers, and that the file or variable exists and is allowed",
        )
    if validation.errors:
        problems = "; ".join(f"{key}: {' '.join(messages)}" for key, messages in sorted(validation.errors.items()))
        raise RefusedError(
            f"Kafka Connect rejects the connector config: {problems}",
            "correct the environment file, or the values to which the worker resolves the placeholders",
        )


def apply(
    client: ConnectClient,
    name: str,
    config: dict[str, str],
    changes: list[Change],
    *,
    start: StartPosition,
    progress: Reporter,
    state: State = "running",
) -> bool:
    """Make the `changes` of diff(). Return whether the connector was started.

    A new connector gets an offset before its start. Without an offset, a restart before the first event would begin at
    the server's current LSN, and rows written since the slot was created would be lost without an error
    (PostgresOffsetContext).
    """
    updater = _ConnectorUpdater(client, name, config, start, state, progress)
    started = False
    for change in changes:
        progress(change.title)
        started = updater.make(change) or started
    return started


@dataclass
class _ConnectorUpdater:
    """Makes the changes of one connector. Methods that can start it return whether the connector was started."""

    client: ConnectClient
    name: str
    config: dict[str, str]
    start: StartPosition
    state: State
    progress: Reporter

    def make(self, change: Change) -> bool:
        if change.action == "delete":
            remove(self.client, change.name, progress=self.progress)
            return False
        if change.kind == "offsets":
            self._delete_offsets()
            return False
        if change.kind == "state":
            return self._enter_state()
        if change.kind == "start":
            return self._start()
        if change.action == "update":
            return self._update()
        put_config(self.client, self.name, self.config, self.progress, create=True)
        return self._start()

    def _start(self) -> bool:
        """Bring a connector that was stopped before this apply into the declared state."""
        wait_stopped(self.client, self.name)
        return self._seed_and_request_state(was_stopped=True)

    def _update(self) -> bool:
        """Change the config while the connector is stopped. A paused or stopped connector remains in its state.

        If the connector kept running, the RUNNING state of the old task could be mistaken for that of the new task.
        """
        if is_paused_or_stopped(self.client.status(self.name)):
            put_config(self.client, self.name, self.config, self.progress)
            return False
        try:
            stop(self.client, self.name, progress=self.progress)
            put_config(self.client, self.name, self.config, self.progress)
            return self._seed_and_request_state()
        except OutboxKitError as error:
            raise type(error)(f"{error.message}; {self._resume_old_config()}", error.hint) from None

    def _resume_old_config(self) -> str:
        """After a failed update, resume the connector unless it has the new config; return a text about its state."""
        try:
            actual = self.client.config(self.name)
            if actual is not None and different_keys(self.config, actual):
                self._request_state()
                return f"connector {self.name} keeps its previous config and is {self.state} again"
        except OutboxKitError as error:
            self.progress(error.message)
        return f"connector {self.name} is left STOPPED, and WAL grows: run `outbox apply` again"

    def _enter_state(self) -> bool:
        status = self.client.status(self.name)
        if self.state == "stopped" or (status and status.connector == "STOPPED"):
            stop(self.client, self.name, progress=self.progress)
            return self._seed_and_request_state()
        return self._request_state()

    def _delete_offsets(self) -> None:
        stop(self.client, self.name, progress=self.progress)
        write_confirmed(
            f"delete the offsets of {self.name}",
            lambda: self.client.delete_offsets(self.name),
            lambda: not any(entry["offset"] for entry in self.client.offsets(self.name)),
            self.progress,
        )

    def _seed_and_request_state(self, *, was_stopped: bool = False) -> bool:
        """Ensure that the stopped connector has a usable offset (also for a later resume), then request the state."""
        ensure_offset(self.client, self.name, self.start, self.progress, was_stopped=was_stopped)
        return self._request_state()

    def _request_state(self) -> bool:
        if self.state != "stopped":
            request = self.client.resume if self.state == "running" else self.client.pause
            send_request(lambda: request(self.name), self.progress)
        return self.state == "running"
