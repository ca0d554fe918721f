"""Implement the commands restart, pause, resume and stop. Each command waits for the new state, and can be repeated.

Each command holds the pipeline's lock, so that no two commands change the connector at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from outbox_events.errors import RejectedError, UnreachableError
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.client import ConnectorStatus, root_cause
from outbox_kit.connect.lifecycle import has_failed, is_paused_or_stopped, is_running, status_text
from outbox_kit.deployment import Deployment, wait_until_reading
from outbox_kit.deployment.preconditions import require_connector
from outbox_kit.operations.preconditions import refuse_unsafe_start
from outbox_kit.results import Reporter

PAUSE_TIMEOUT_S = 60


@contextmanager
def _exclusive(deployment: Deployment, command: str, progress: Reporter) -> Iterator[None]:
    """Hold the pipeline's lock, unless the database is unreachable.

    While the database is down, no other command can hold the lock, and stopping a connector must remain possible.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(deployment.exclusive(command, progress))
        except UnreachableError as error:
            progress(f"the lock of the pipeline was not acquired: {error.message}")
        yield


def restart(deployment: Deployment, progress: Reporter, *, only_failed: bool = False) -> ConnectorStatus:
    """Restart the connector and its tasks, or only those that are FAILED, and wait until all are RUNNING.

    Raises WaitTimeoutError. Raises RejectedError if the connector is paused or stopped, or if it fails again. Raises
    RefusedError, before any change, if rows could be lost.
    """
    with _exclusive(deployment, "restart", progress):
        name = deployment.pipeline.connector.name
        actual = require_connector(deployment)
        if is_paused_or_stopped(actual.status):
            message = f"connector {name} is paused or stopped: {status_text(actual.status)}"
            raise RejectedError(message, "run `outbox resume`")
        if only_failed and not has_failed(actual.status):
            progress(f"neither the connector nor a task is FAILED: {status_text(actual.status)}")
        else:
            refuse_unsafe_start(deployment, actual)
            progress(f"restart {'failed tasks of ' if only_failed else ''}connector {name}")
            deployment.connect.restart(name, only_failed=only_failed)
        wait_running(deployment)
        return _read_status(deployment)


def resume(deployment: Deployment, progress: Reporter, *, skip_rows: bool = False) -> ConnectorStatus:
    """Resume a paused or stopped connector, and wait until it and its tasks are RUNNING.

    `skip_rows` accepts an offset that skips rows. Raises WaitTimeoutError. Raises RejectedError if the connector is
    FAILED. Raises RefusedError, before any change, if rows could be lost.
    """
    with _exclusive(deployment, "resume", progress):
        name = deployment.pipeline.connector.name
        actual = require_connector(deployment)
        status = actual.status
        if status and has_failed(status) and not is_paused_or_stopped(status):
            raise RejectedError(f"connector {name} FAILED: {root_cause(status.traces)}", "run `outbox restart`")
        if is_running(status):
            progress(f"connector {name} is already RUNNING")
            return _read_status(deployment)
        refuse_unsafe_start(deployment, actual, skip_rows=skip_rows)
        progress(f"resume connector {name}")
        deployment.connect.resume(name)
        wait_running(deployment)
        return _read_status(deployment)


def pause(deployment: Deployment, progress: Reporter) -> ConnectorStatus:
    """Pause the connector; its tasks stay assigned. Raises WaitTimeoutError, or RejectedError if it has FAILED."""
    with _exclusive(deployment, "pause", progress):
        name = deployment.pipeline.connector.name
        status = require_connector(deployment).status
        if status and has_failed(status):
            hint = "run `outbox restart --failed`, then `outbox pause`"
            raise RejectedError(f"connector {name} FAILED: {root_cause(status.traces)}", hint)
        progress(f"pause connector {name}")
        deployment.connect.pause(name)
        connect_lifecycle.wait_for_state(
            deployment.connect, name, state="paused", seconds=PAUSE_TIMEOUT_S, stability_seconds=0
        )
        return _read_status(deployment)


def stop(deployment: Deployment, progress: Reporter) -> ConnectorStatus:
    """Stop the connector so that it releases the slot; config and offsets are retained. Raises WaitTimeoutError."""
    with _exclusive(deployment, "stop", progress):
        name = deployment.pipeline.connector.name
        require_connector(deployment)
        progress(f"stop connector {name}")
        connect_lifecycle.stop(deployment.connect, name)
        return _read_status(deployment)


def wait_running(deployment: Deployment) -> None:
    """Wait until the connector and its tasks are RUNNING and read the slot. Raises WaitTimeoutError, RejectedError.

    The state alone is not sufficient: a task is RUNNING even while Debezium waits for the slot to be released.
    """
    name, settings = deployment.pipeline.connector.name, deployment.environment.connector
    connect_lifecycle.wait_for_state(deployment.connect, name, stability_seconds=settings.stability_seconds)
    wait_until_reading(deployment)


def declared_state_note(deployment: Deployment, state: str) -> str:
    """Return a note if the environment file declares a different state, else an empty string."""
    declared = deployment.environment.connector.state
    if declared == state:
        return ""
    return (
        f"connector.state of the environment file is {declared}: `outbox plan` shows a change, and "
        f"`outbox apply` makes the connector {declared}; set connector.state: {state} to keep the connector {state}"
    )


def _read_status(deployment: Deployment) -> ConnectorStatus:
    name = deployment.pipeline.connector.name
    status = deployment.connect.status(name)
    if status is None:
        raise RejectedError(f"connector {name} was deleted during the command", "run `outbox apply`")
    return status
