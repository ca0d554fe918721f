"""Execute the planned changes to a connector."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_events.errors import OutboxError, RefusedError
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.config_diff import different_keys
from outbox_kit.connect.lifecycle import is_paused_or_stopped, put_config, remove, stop, wait_stopped
from outbox_kit.connect.offset_seeding import StartPosition, ensure_offset
from outbox_kit.connect.state import INSTALL_HINT, State, missing_plugins
from outbox_kit.connect.write_requests import send_request, write_confirmed
from outbox_kit.results import Reporter, silent
from outbox_kit.results.changes import Change


def refuse_missing_plugins(client: ConnectClient, config: dict[str, str]) -> None:
    """Raise RefusedError if a class in the config is not installed on the worker."""
    missing_classes = missing_plugins(config, list(client.plugin_versions()))
    if missing_classes:
        raise RefusedError(f"the Connect worker at {client.url} lacks {', '.join(missing_classes)}", INSTALL_HINT)


def refuse_invalid(client: ConnectClient, name: str, config: dict[str, str], *, progress: Reporter = silent) -> None:
    """Raise RefusedError if the worker rejects the config or does not resolve a placeholder. Nothing is written."""
    # Report this step first, because the validation connects to the database, which takes long if it is unreachable.
    progress("validate the connector config on the worker")
    validation = client.validate(name, config)
    if validation.unresolved_keys:
        raise RefusedError(
            f"the Connect worker does not resolve the placeholder in {', '.join(validation.unresolved_keys)}",
            "check the worker's config.providers, and whether the placeholder's file or variable exists and is allowed",
        )
    if validation.errors:
        problems = "; ".join(f"{key}: {' '.join(messages)}" for key, messages in sorted(validation.errors.items()))
        raise RefusedError(
            f"Kafka Connect rejects the connector config: {problems}",
            "correct these keys in the deployment's files, or the values of their placeholders on the worker",
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
    """Make the `changes` that state.diff() returned. Return whether the connector was requested to start.

    A new connector gets an offset before its start. Without an offset, a connector that restarts before its first event
    would begin at the server's current LSN, and rows written since the slot was created would be lost without an error
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
    """Makes the changes to one connector. Methods with a boolean result return whether they requested a start."""

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
            return self._bring_to_declared_state()
        if change.action == "update":
            return self._update()
        put_config(self.client, self.name, self.config, self.progress, create=True)
        return self._bring_to_declared_state()

    def _bring_to_declared_state(self) -> bool:
        """Bring a STOPPED connector that is new, or was stopped before this apply, into the declared state."""
        wait_stopped(self.client, self.name)
        return self._seed_and_request_state(was_stopped=True)

    def _update(self) -> bool:
        """Update the config. A running connector is stopped first; a paused or stopped connector keeps its state.

        Without the stop, the RUNNING state of the previous task could be mistaken for the state of the new task.
        """
        if is_paused_or_stopped(self.client.status(self.name)):
            put_config(self.client, self.name, self.config, self.progress)
            return False
        try:
            stop(self.client, self.name, progress=self.progress)
            put_config(self.client, self.name, self.config, self.progress)
            return self._seed_and_request_state()
        except OutboxError as error:
            raise type(error)(f"{error.message}; {self._request_state_after_failure()}", error.hint) from None
        except KeyboardInterrupt:
            self.progress(self._request_state_after_failure())
            raise

    def _request_state_after_failure(self) -> str:
        """After a failed update, request the declared state if the live config is unchanged. Describe the outcome."""
        try:
            actual = self.client.config(self.name)
            if actual is not None and different_keys(self.config, actual):
                self._request_state()
                return f"connector {self.name} keeps its previous config, and state {self.state} was requested"
        except OutboxError as error:
            self.progress(error.message)
        return f"connector {self.name} may be STOPPED, and the server then retains WAL: run `outbox apply` again"

    def _enter_state(self) -> bool:
        status = self.client.status(self.name)
        if self.state == "stopped" or (status and status.connector_state == "STOPPED"):
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
        """Ensure that the stopped connector has a usable offset, then request the declared state."""
        ensure_offset(self.client, self.name, self.start, self.progress, was_stopped=was_stopped)
        return self._request_state()

    def _request_state(self) -> bool:
        if self.state != "stopped":
            request = self.client.resume if self.state == "running" else self.client.pause
            send_request(lambda: request(self.name), self.progress)
        return self.state == "running"
