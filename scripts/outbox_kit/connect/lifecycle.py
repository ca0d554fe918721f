"""Creates, updates and removes the connector, with its offsets seeded, and waits until it does as it should."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from outbox_kit.changes import Change
from outbox_kit.connect import offset_seeding
from outbox_kit.connect.client import ConnectClient, ConnectorStatus, NotFoundError
from outbox_kit.connect.confirmed_writes import confirmed, sent
from outbox_kit.connect.offset_seeding import Start
from outbox_kit.connect.state import INSTALL, State, different_keys, is_in, missing_plugins
from outbox_kit.connect.task_errors import root_cause
from outbox_kit.errors import OutboxKitError, RefusedError, RejectedError
from outbox_kit.progress import Progress, silent
from outbox_kit.waiting import Seen, wait_for

__all__ = ["apply", "remove", "root_cause", "settle", "stop", "wait_running"]

RUN_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
REMOVE_TIMEOUT_S = 60
# After an update the old state is still served for a moment, and REST shows no generation:
# so only a state that stays is believed.
STABILITY_S = 2.0
FAILED_LOOKS = 4
LOOK_EVERY_S = 0.5


RESTART = "mend the cause, then `outbox restart --failed`; see docs/operations.md, failed task"


class FailedError(RejectedError):
    """The connector or a task of it FAILED."""


def refuse_missing_plugins(client: ConnectClient, config: dict[str, str]) -> None:
    """Every class that the config names must be installed. Raises RefusedError."""
    missing = missing_plugins(config, client.plugins())
    if missing:
        raise RefusedError(f"the Connect worker at {client.url} lacks plugin {', '.join(missing)}", INSTALL)


def refuse_invalid(client: ConnectClient, name: str, config: dict[str, str], *, progress: Progress = silent) -> None:
    """Let the worker validate the config before it is written. Raises RefusedError."""
    # It logs in to the database for that: where it cannot reach it, this takes as long as its time-outs.
    progress("let the worker validate the connector config")
    found = client.validate(name, config)
    if found.unresolved:
        raise RefusedError(
            f"the Connect worker does not resolve the placeholder of {', '.join(found.unresolved)}",
            "does the worker know the config provider, and is what the placeholder names there and allowed?",
        )
    if found.errors:
        listed = "; ".join(f"{key}: {' '.join(messages)}" for key, messages in sorted(found.errors.items()))
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
    start: Start,
    progress: Progress,
    state: State = "running",
) -> bool:
    """Make `changes`, which diff() found: create STOPPED, seed the offsets, bring into `state`; update; remove.

    Returns whether the connector was told to run.

    Without a seed, a restart before the first message starts at the server's position of that time: rows
    written since the slot was made are lost, and nothing says so (debezium PostgresOffsetContext).
    """
    connector = _Connector(client, name, config, start, state, progress)
    told = False
    for change in changes:
        progress(f"{change.action} {change.object}")
        kind, _, object_name = change.object.partition(" ")
        if change.action == "delete":
            remove(client, object_name, progress=progress)
        elif kind == "offsets":
            connector.forget_offsets()
        elif kind == "connector" and change.action == "update":
            told = connector.update() or told
        elif kind == "state":
            told = connector.enter_state()
        else:
            told = connector.create() if kind == "connector" else connector.start()
    return told


class _Connector:
    """One connector in the hands of an apply."""

    def __init__(
        self,
        client: ConnectClient,
        name: str,
        config: dict[str, str],
        begin: Start,
        state: State,
        progress: Progress,
    ) -> None:
        self.client, self.name, self.config = client, name, config
        self.begin, self.state, self.progress = begin, state, progress

    def create(self) -> bool:
        """Create it STOPPED: it must not run before it has an offset."""
        write = lambda: self.client.create_stopped(self.name, self.config)  # noqa: E731 - named for the next line
        happened = lambda: has_config(self.client, self.name, self.config)  # noqa: E731
        confirmed(f"create connector {self.name}", write, happened, self.progress)
        return self.start()

    def start(self) -> bool:
        """Bring a connector that was stopped into the declared state. Returns whether that is running."""
        wait_stopped(self.client, self.name)
        return self._go(halted=True)

    def update(self) -> bool:
        """Change the config while it is stopped: as long as it runs, the old task's RUNNING passes for the new one's.

        One that is at rest is left so. Returns whether it was told to run again.
        """
        if is_at_rest(self.client.status(self.name)):
            put_config(self.client, self.name, self.config, self.progress)
            return False
        try:
            stop(self.client, self.name, progress=self.progress)
            put_config(self.client, self.name, self.config, self.progress)
            return self._go()
        except OutboxKitError as error:
            raise type(error)(f"{error.message}; {self._give_back()}", error.hint) from None

    def _give_back(self) -> str:
        """After an update that failed: let the connector go on under its old config; says how it was left.

        Stopped it would hold the slot, and WAL would grow. Under a config that was written but has no position yet it
        must not run: the next apply goes on there.
        """
        try:
            live = self.client.config(self.name)
            if live is not None and different_keys(self.config, live):
                self._move()
                return f"the earlier config of connector {self.name} is still there, and it is {self.state} again"
        except OutboxKitError as error:
            self.progress(error.message)
        return f"connector {self.name} is left STOPPED, and WAL grows: run `outbox apply` again"

    def enter_state(self) -> bool:
        """Bring a connector that somebody halted or let run into the declared state."""
        status = self.client.status(self.name)
        if self.state == "stopped" or (status and status.connector == "STOPPED"):
            stop(self.client, self.name, progress=self.progress)
            return self._go()
        return self._move()

    def forget_offsets(self) -> None:
        stop(self.client, self.name, progress=self.progress)
        write = lambda: self.client.delete_offsets(self.name)  # noqa: E731 - named for the next line
        happened = lambda: not any(entry["offset"] for entry in self.client.offsets(self.name))  # noqa: E731
        confirmed(f"forget the offsets of {self.name}", write, happened, self.progress)

    def _go(self, *, halted: bool = False) -> bool:
        """Out of STOPPED only with an offset; who resumes it later needs one too."""
        offset_seeding.ensure(self.client, self.name, self.begin, self.progress, halted=halted)
        return self._move()

    def _move(self) -> bool:
        if self.state != "stopped":
            go = self.client.resume if self.state == "running" else self.client.pause
            sent(lambda: go(self.name), self.progress)
        return self.state == "running"


def put_config(client: ConnectClient, name: str, config: dict[str, str], progress: Progress) -> None:
    """Write the config, and see that it is there."""
    confirmed(
        f"update connector {name}",
        lambda: client.update(name, config),
        lambda: has_config(client, name, config),
        progress,
    )


def has_config(client: ConnectClient, name: str, config: dict[str, str]) -> bool:
    """Whether Connect has this config; by its fingerprint where values are masked."""
    live = client.config(name)
    return live is not None and not different_keys(config, live)


def stop(client: ConnectClient, name: str, *, progress: Progress = silent) -> None:
    """Stop the connector and wait until it has given up its tasks."""
    sent(lambda: client.stop(name), progress)
    wait_stopped(client, name)


def remove(client: ConnectClient, name: str, *, offsets: bool = False, progress: Progress = silent) -> None:
    """Stop and delete the connector and wait until it is gone; with `offsets` its position too.

    Connect keeps the position of a deleted connector, and gives it to the next one of that name. Nothing happens where
    there is no such connector.
    """
    if client.config(name) is None:
        return
    # First stopped, so that its slot is given up: a deleted connector's task may run on for a moment.
    stop(client, name, progress=progress)
    if offsets:
        client.delete_offsets(name)
    try:
        sent(lambda: client.delete(name), progress)
    except NotFoundError:
        return
    wait_for(
        f"connector {name} to be gone",
        lambda: _gone(client, name),
        seconds=REMOVE_TIMEOUT_S,
        hint="look at the Connect worker's log",
    )


def _gone(client: ConnectClient, name: str) -> Seen[bool]:
    status = client.status(name)
    if status is not None:
        return Seen(None, status.words)
    return Seen(True, "") if client.config(name) is None else Seen(None, "its config is still there")


def wait_stopped(client: ConnectClient, name: str) -> None:
    """Wait until the connector is STOPPED and has no task. Raises WaitTimeoutError."""

    def look() -> Seen[bool]:
        status = client.status(name)
        if status is None:
            return Seen(None, "no status yet")
        return Seen(is_stopped(status) or None, status.words)

    wait_for(
        f"connector {name} to be STOPPED without tasks",
        look,
        seconds=STOP_TIMEOUT_S,
        hint="look at the Connect worker's log",
    )


def is_stopped(status: ConnectorStatus) -> bool:
    """STOPPED, and its tasks are given up: only then its offsets can be changed."""
    return status.connector == "STOPPED" and not status.tasks


def is_at_rest(status: ConnectorStatus | None) -> bool:
    """Somebody paused or stopped it on purpose."""
    return status is not None and not is_in("running", status)


def settle(
    client: ConnectClient,
    name: str,
    progress: Progress,
    *,
    started: bool,
    state: State = "running",
    stability_seconds: float = STABILITY_S,
) -> bool:
    """Wait until the connector is in its declared state and stays there. Raises WaitTimeoutError, FailedError.

    One that this apply has not `started`, and that somebody halted since it looked, is not waited for.
    Returns whether it was seen RUNNING for `stability_seconds`.
    """
    if state == "stopped":
        wait_stopped(client, name)
        return False
    status = client.status(name)
    if state == "running" and status and is_at_rest(status) and not started:
        progress(f"connector {name} is {status.connector}: left so")
        return False
    progress(f"wait for connector {name} to {'run' if state == 'running' else 'pause'}")
    wait_running(client, name, state=state, stability_seconds=stability_seconds)
    return state == "running"


def wait_running(
    client: ConnectClient,
    name: str,
    *,
    seconds: float = RUN_TIMEOUT_S,
    state: State = "running",
    stability_seconds: float = STABILITY_S,
) -> None:
    """Wait until connector and tasks are RUNNING (or PAUSED), for `stability_seconds` without a break.

    `seconds` bounds the wait for the state; the stability window comes on top. Raises WaitTimeoutError, FailedError.
    """
    wanted = "PAUSED" if state == "paused" else "RUNNING"
    since: float | None = None
    failed = 0

    def look() -> Seen[bool]:
        nonlocal since, failed
        status = client.status(name)
        now = monotonic()
        if not (is_running(status) if state == "running" else _is_paused(status)):
            since = None
        elif since is None:
            since = now
        failed = failed + 1 if has_failed(status) else 0
        if failed >= FAILED_LOOKS:
            refuse_failed(name, status)
        words = status.words if status else "no status yet"
        stable = since is not None and now - since >= stability_seconds
        return Seen(stable or None, words)

    wait_for(
        f"connector {name} and its tasks to be {wanted}",
        look,
        seconds=seconds + stability_seconds,
        every=LOOK_EVERY_S,
        hint="look at the Connect worker's log; after the loss of a worker, tasks wait for the rebalance delay",
    )


@contextmanager
def resumed_on_error(client: ConnectClient, name: str, progress: Progress, *, was_running: bool) -> Iterator[None]:
    """Around what a connector is stopped for, up to the first write: where that fails, it runs on as before."""
    try:
        yield
    except BaseException:
        if was_running:
            progress(f"resume connector {name}: nothing was changed")
            try:
                client.resume(name)
            except OutboxKitError as error:
                progress(f"connector {name} stays STOPPED, start it with `outbox resume`: {error.message}")
        raise


def is_running(status: ConnectorStatus | None) -> bool:
    """RUNNING with at least one task, all of them RUNNING. No task yet is a normal state in between."""
    return bool(status and status.tasks and {status.connector, *status.tasks} == {"RUNNING"})


def _is_paused(status: ConnectorStatus | None) -> bool:
    """PAUSED with every task it has; one that is paused out of STOPPED has none until it is resumed."""
    return status is not None and {status.connector, *status.tasks} == {"PAUSED"}


def refuse_failed(name: str, status: ConnectorStatus | None) -> None:
    """A failed task stays failed until somebody restarts it, so waiting is no use. Raises FailedError."""
    if status and has_failed(status):
        raise FailedError(f"connector {name} FAILED: {root_cause(status.traces)}", RESTART)


def has_failed(status: ConnectorStatus | None) -> bool:
    """The connector or a task FAILED."""
    return status is not None and "FAILED" in (status.connector, *status.tasks)
