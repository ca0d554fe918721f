"""restart, pause, resume, stop: each waits until the state is there, and is safe to run again."""

from __future__ import annotations

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.deployment import Deployment, wait_reading
from outbox_kit.errors import RejectedError
from outbox_kit.operations.resume_guard import refuse_unsafe_start, require_connector
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

PAUSE_TIMEOUT_S = 60
LOG = "look at the Connect worker's log"


def restart(deployment: Deployment, progress: Progress, *, only_failed: bool = False) -> ConnectorStatus:
    """Restart connector and tasks, or what FAILED of them, and wait until all run.

    Raises RefusedError before anything is touched, RejectedError with the root cause when it fails again,
    WaitTimeoutError.
    """
    name = deployment.pipeline.connector.name
    actual = require_connector(deployment)
    if connect_lifecycle.is_at_rest(actual.status):
        raise RejectedError(f"connector {name} is {_words(actual.status)}: nothing to restart", "`outbox resume`")
    if only_failed and not connect_lifecycle.has_failed(actual.status):
        progress(f"nothing FAILED: {_words(actual.status)}")
        wait_running(deployment)
        return _seen(deployment.connect, name)
    refuse_unsafe_start(deployment, actual)
    progress(f"restart {'what failed of ' if only_failed else ''}connector {name}")
    deployment.connect.restart(name, only_failed=only_failed)
    wait_running(deployment)
    return _seen(deployment.connect, name)


def resume(deployment: Deployment, progress: Progress) -> ConnectorStatus:
    """Let a paused or stopped connector read on, and wait until it and its tasks run.

    Raises RefusedError before anything is touched, RejectedError, WaitTimeoutError.
    """
    name = deployment.pipeline.connector.name
    actual = require_connector(deployment)
    if connect_lifecycle.has_failed(actual.status) and not connect_lifecycle.is_at_rest(actual.status):
        cause = connect_lifecycle.root_cause(actual.status.traces) if actual.status else ""
        raise RejectedError(f"connector {name} FAILED, and resume does not mend that: {cause}", "`outbox restart`")
    if connect_lifecycle.is_running(actual.status):
        progress(f"connector {name} is RUNNING already")
        return _seen(deployment.connect, name)
    refuse_unsafe_start(deployment, actual)
    progress(f"resume connector {name}")
    deployment.connect.resume(name)
    wait_running(deployment)
    return _seen(deployment.connect, name)


def pause(deployment: Deployment, progress: Progress) -> ConnectorStatus:
    """Keep the tasks, and read nothing; a task that FAILED stays so. Raises WaitTimeoutError."""
    name = deployment.pipeline.connector.name
    require_connector(deployment)
    progress(f"pause connector {name}")
    deployment.connect.pause(name)
    wait_for(
        f"connector {name} and its tasks to be PAUSED",
        lambda: _paused(deployment.connect.status(name)),
        seconds=PAUSE_TIMEOUT_S,
        hint=LOG,
    )
    return _seen(deployment.connect, name)


def stop(deployment: Deployment, progress: Progress) -> ConnectorStatus:
    """Give up the tasks and with them the slot; config and offsets stay. Raises WaitTimeoutError."""
    name = deployment.pipeline.connector.name
    require_connector(deployment)
    progress(f"stop connector {name}")
    connect_lifecycle.stop(deployment.connect, name)
    return _seen(deployment.connect, name)


def wait_running(deployment: Deployment) -> None:
    """Wait until connector and tasks run and the slot moves. Raises WaitTimeoutError, RejectedError.

    A task says RUNNING while Debezium still waits for the slot that its predecessor has not given up.
    """
    name, settings = deployment.pipeline.connector.name, deployment.environment.connector
    connect_lifecycle.wait_running(deployment.connect, name, stability_seconds=settings.stability_seconds)
    wait_reading(deployment)


def declared_otherwise(deployment: Deployment, state: str) -> str:
    """What the next `apply` makes of this, in words; empty when it leaves it so."""
    declared = deployment.environment.connector.state
    if declared == state:
        return ""
    return (
        f"the environment file says connector.state: {declared}, so `outbox plan` shows this as a change and "
        f"`outbox apply` makes it {declared}; set connector.state: {state} to keep it"
    )


def _paused(status: ConnectorStatus | None) -> Seen[bool]:
    if status is None:
        return Seen(None, "no status yet")
    done = status.connector == "PAUSED" and all(task in ("PAUSED", "FAILED") for task in status.tasks)
    return Seen(True if done else None, status.words)


def _seen(client: ConnectClient, name: str) -> ConnectorStatus:
    status = client.status(name)
    if status is None:
        raise RejectedError(f"connector {name} was removed meanwhile", "run `outbox apply`")
    return status


def _words(status: ConnectorStatus | None) -> str:
    return status.words if status else "without a status yet"
