"""Creates or updates the connector, with its offsets seeded, and waits until it really runs."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.connect.state import INSTALL, missing_plugins
from outbox_kit.errors import RefusedError, RejectedError
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

RUN_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
# After an update the old state is still served for a moment, and REST shows no generation:
# so only a state that stays is believed.
STABLE_LOOKS = 4
LOOK_EVERY_S = 0.5


def refuse_missing_plugins(client: ConnectClient, config: dict[str, str]) -> None:
    """Every class that the config names must be installed. Raises RefusedError."""
    missing = missing_plugins(config, client.plugins())
    if missing:
        raise RefusedError(f"the Connect worker at {client.url} lacks plugin {', '.join(missing)}", INSTALL)


def refuse_invalid(client: ConnectClient, name: str, config: dict[str, str]) -> None:
    """Let the worker validate the config before it is written. Raises RefusedError."""
    errors = client.validate(name, config)
    if errors:
        listed = "; ".join(f"{key}: {' '.join(messages)}" for key, messages in sorted(errors.items()))
        raise RefusedError(
            f"Kafka Connect refuses the connector config: {listed}",
            "correct the environment file, or what the worker resolves placeholders from",
        )


def apply(
    client: ConnectClient,
    name: str,
    config: dict[str, str],
    changes: list[Change],
    *,
    prefix: str,
    seed: dict[str, int],
    progress: Progress,
) -> bool:
    """Make `changes`, which diff() found: create STOPPED, seed the offsets, start; or update.

    Returns whether the connector was told to run.

    Without a seed, a restart before the first message starts at the server's position of that time: rows
    written since the slot was made are lost, and nothing says so (debezium PostgresOffsetContext).
    """
    started = False
    for change in changes:
        progress(f"{change.action} {change.object}")
        kind = change.object.split()[0]
        if kind == "offsets":
            stop(client, name)
            client.delete_offsets(name)
        elif kind == "connector" and change.action == "update":
            started = _update(client, name, config) or started
        else:
            if kind == "connector":
                client.create_stopped(name, config)
            _seed_and_start(client, name, prefix=prefix, seed=seed)
            started = True
    return started


def stop(client: ConnectClient, name: str) -> None:
    """Stop the connector and wait until it has given up its tasks."""
    client.stop(name)
    _wait_stopped(client, name)


def _update(client: ConnectClient, name: str, config: dict[str, str]) -> bool:
    """Change the config of a stopped connector: while it runs, the old task's RUNNING passes for the new one's.

    Returns whether it was told to run again: one that somebody paused or stopped stays so.
    """
    if is_at_rest(client.status(name)):
        client.update(name, config)
        return False
    stop(client, name)
    client.update(name, config)
    client.resume(name)
    return True


def _seed_and_start(client: ConnectClient, name: str, *, prefix: str, seed: dict[str, int]) -> None:
    """Give a stopped connector the slot's position; an offset that is there is never overwritten."""
    _wait_stopped(client, name)
    if not client.offsets(name):
        client.patch_offsets(name, {"server": prefix}, seed)
    client.resume(name)


def _wait_stopped(client: ConnectClient, name: str) -> None:
    wait_for(
        f"connector {name} to be STOPPED without tasks",
        lambda: _stopped(client.status(name)),
        seconds=STOP_TIMEOUT_S,
        hint="look at the Connect worker's log",
    )


def is_at_rest(status: ConnectorStatus | None) -> bool:
    """Somebody paused or stopped it on purpose."""
    return status is not None and status.connector in ("PAUSED", "STOPPED")


def settle(client: ConnectClient, name: str, progress: Progress, *, started: bool) -> None:
    """Wait until the connector runs, unless somebody paused or stopped it. Raises WaitTimeoutError, RejectedError.

    One that this apply has `started` may still look stopped for a moment.
    """
    status = client.status(name)
    if status and is_at_rest(status) and not started:
        progress(f"connector {name} is {status.connector}: left so")
        return
    progress(f"wait for connector {name} to run")
    wait_running(client, name)


def wait_running(client: ConnectClient, name: str, *, seconds: float = RUN_TIMEOUT_S) -> None:
    """Wait until connector and tasks are RUNNING and stay so. Raises WaitTimeoutError, RejectedError."""
    running = failed = 0

    def look() -> Seen[bool]:
        nonlocal running, failed
        status = client.status(name)
        running = running + 1 if is_running(status) else 0
        failed = failed + 1 if has_failed(status) else 0
        if failed >= STABLE_LOOKS:
            refuse_failed(name, status)
        words = status.words if status else "no status yet"
        return Seen(True if running >= STABLE_LOOKS else None, words)

    wait_for(
        f"connector {name} and its tasks to be RUNNING",
        look,
        seconds=seconds,
        every=LOOK_EVERY_S,
        hint="look at the Connect worker's log; after the loss of a worker, tasks wait for the rebalance delay",
    )


def is_running(status: ConnectorStatus | None) -> bool:
    """RUNNING with at least one task, all of them RUNNING. No task yet is a normal state in between."""
    return bool(
        status and status.connector == "RUNNING" and status.tasks and all(task == "RUNNING" for task in status.tasks)
    )


def refuse_failed(name: str, status: ConnectorStatus | None) -> None:
    """A failed task stays failed until somebody restarts it, so waiting is no use. Raises RejectedError."""
    if status and has_failed(status):
        raise RejectedError(f"connector {name} FAILED: {root_cause(status.traces)}", "see docs/operations.md")


def has_failed(status: ConnectorStatus | None) -> bool:
    """The connector or a task FAILED."""
    return status is not None and "FAILED" in (status.connector, *status.tasks)


def root_cause(traces: tuple[str, ...]) -> str:
    """The last `Caused by` of a Java stack trace, without the frames."""
    if not traces:
        return "no trace"
    lines = traces[0].splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else lines[0]


def _stopped(status: ConnectorStatus | None) -> Seen[bool]:
    if status is None:
        return Seen(None, "no status yet")
    return Seen(True if status.connector == "STOPPED" and not status.tasks else None, status.words)
