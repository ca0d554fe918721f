"""Request state transitions of a connector, and wait until they are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from outbox_events.errors import OutboxError, RejectedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.client import ConnectClient, ConnectorStatus, root_cause
from outbox_kit.connect.config_diff import different_keys
from outbox_kit.connect.rest import NotFoundError
from outbox_kit.connect.state import State, is_in_state
from outbox_kit.connect.write_requests import send_request, write_confirmed
from outbox_kit.results import Reporter, silent

STATE_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
REMOVE_TIMEOUT_S = 60
# Shortly after an update, Connect still reports the previous state, and the response has no generation number.
# Therefore a state counts only after it has been stable for this time.
STABILITY_S = 2.0
FAILED_POLLS = 4
POLL_INTERVAL_S = 0.5
WORKER_LOG_HINT = "see the Connect worker's log"
RESTART_HINT = "fix the cause, then run `outbox restart --failed`; see docs/incidents.md, failed task"


class FailedError(RejectedError):
    """The connector or one of its tasks is FAILED."""


def put_config(
    client: ConnectClient, name: str, config: dict[str, str], progress: Reporter, *, create: bool = False
) -> None:
    """Update the connector, or create it in state STOPPED, and confirm that Connect has the config."""
    write = client.create_stopped if create else client.update_config

    def is_done() -> bool:  # masked values are not compared, but a changed value also changes the fingerprint
        actual = client.config(name)
        return actual is not None and not different_keys(config, actual)

    description = f"{'create' if create else 'update'} connector {name}"
    write_confirmed(description, lambda: write(name, config), is_done, progress)


def stop(client: ConnectClient, name: str, *, progress: Reporter = silent) -> None:
    """Stop the connector and wait until it has no tasks. Raises WaitTimeoutError."""
    send_request(lambda: client.stop(name), progress)
    wait_stopped(client, name)


def remove(client: ConnectClient, name: str, *, with_offsets: bool = False, progress: Reporter = silent) -> None:
    """Delete the connector, if it exists, and wait until Connect no longer lists it. Raises WaitTimeoutError.

    If `with_offsets` is set, its offsets are deleted too. Otherwise, a new connector with this name would use them.
    """
    if client.config(name) is None:
        return
    # Stop the connector first, because the task of a deleted connector can keep the slot active for a moment.
    stop(client, name, progress=progress)
    if with_offsets:
        client.delete_offsets(name)
    try:
        send_request(lambda: client.delete(name), progress)
    except NotFoundError:
        return

    def poll() -> Observation[bool]:
        status = client.status(name)
        if status is not None:
            return Observation(None, status.text)
        return Observation(True, "") if client.config(name) is None else Observation(None, "the config still exists")

    wait_for(f"connector {name} to be deleted", poll, seconds=REMOVE_TIMEOUT_S, hint=WORKER_LOG_HINT)


def wait_stopped(client: ConnectClient, name: str) -> None:
    """Wait until the connector is STOPPED and has no tasks. Raises WaitTimeoutError."""

    def poll() -> Observation[bool]:
        status = client.status(name)
        return Observation((status is not None and is_stopped(status)) or None, status_text(status))

    wait_for(f"connector {name} to be STOPPED without tasks", poll, seconds=STOP_TIMEOUT_S, hint=WORKER_LOG_HINT)


def wait_for_declared_state(
    client: ConnectClient,
    name: str,
    progress: Reporter,
    *,
    started: bool,
    state: State = "running",
    stability_seconds: float = STABILITY_S,
) -> bool:
    """Wait until the connector is in its declared state. Raises WaitTimeoutError, FailedError.

    A connector that someone paused or stopped after the plan was made keeps this state, unless this apply `started` it.
    Return whether the connector was RUNNING for `stability_seconds`.
    """
    if state == "stopped":
        wait_stopped(client, name)
        return False
    status = client.status(name)
    if state == "running" and status and is_paused_or_stopped(status) and not started:
        progress(f"connector {name} is {status.connector_state}, and remains in this state")
        return False
    progress(f"wait for connector {name} to be {state.upper()}")
    wait_for_state(client, name, state=state, stability_seconds=stability_seconds)
    return state == "running"


def wait_for_state(
    client: ConnectClient,
    name: str,
    *,
    seconds: float = STATE_TIMEOUT_S,
    state: State = "running",
    stability_seconds: float = STABILITY_S,
) -> None:
    """Wait until the connector and its tasks are RUNNING (or PAUSED) for `stability_seconds` without interruption.

    The wait takes at most `seconds` plus `stability_seconds`. Raises WaitTimeoutError, FailedError.
    """
    in_state = is_running if state == "running" else _is_paused
    stable_since: float | None = None
    failed_polls = 0

    def poll() -> Observation[bool]:
        nonlocal stable_since, failed_polls
        status = client.status(name)
        now = monotonic()
        stable_since = (now if stable_since is None else stable_since) if in_state(status) else None
        failed_polls = failed_polls + 1 if has_failed(status) else 0
        if failed_polls >= FAILED_POLLS:
            raise_if_failed(name, status)
        is_stable = stable_since is not None and now - stable_since >= stability_seconds
        return Observation(is_stable or None, status_text(status))

    wait_for(
        f"connector {name} and its tasks to be {state.upper()}",
        poll,
        seconds=seconds + stability_seconds,
        interval=POLL_INTERVAL_S,
        hint=f"{WORKER_LOG_HINT}; a task of a lost worker starts only after scheduled.rebalance.max.delay.ms",
    )


@contextmanager
def resume_on_error(client: ConnectClient, name: str, progress: Reporter, *, was_running: bool) -> Iterator[None]:
    """If the body of the `with` statement raises an error and the connector `was_running` before, resume it."""
    try:
        yield
    except BaseException:
        if was_running:
            progress(f"resume connector {name}, because the command failed")
            try:
                client.resume(name)
            except OutboxError as error:
                progress(f"connector {name} stays STOPPED ({error.message}): run `outbox resume`")
        raise


def is_stopped(status: ConnectorStatus) -> bool:
    """Return whether the connector is STOPPED and has no tasks. Offsets can be changed only in this state."""
    return status.connector_state == "STOPPED" and not status.task_states


def is_paused_or_stopped(status: ConnectorStatus | None) -> bool:
    return status is not None and not is_in_state("running", status)


def is_running(status: ConnectorStatus | None) -> bool:
    """Return whether the connector and all its tasks (at least one) are RUNNING. A new connector has no task yet."""
    return bool(status and status.task_states and {status.connector_state, *status.task_states} == {"RUNNING"})


def _is_paused(status: ConnectorStatus | None) -> bool:
    """Return whether the connector and its tasks are PAUSED. A connector that is paused after a stop has no task."""
    return status is not None and {status.connector_state, *status.task_states} == {"PAUSED"}


def has_failed(status: ConnectorStatus | None) -> bool:
    return status is not None and "FAILED" in (status.connector_state, *status.task_states)


def raise_if_failed(name: str, status: ConnectorStatus | None) -> None:
    """Raise FailedError if the connector or a task is FAILED, because Connect does not restart it by itself."""
    if status and has_failed(status):
        raise FailedError(f"connector {name} FAILED: {root_cause(status.traces)}", RESTART_HINT)


def status_text(status: ConnectorStatus | None) -> str:
    return status.text if status else "no status yet"
