"""Takes over slot and position of a running Debezium connector that the kit did not make: no gap, no double send.

    checks → topics, schemas, lock file → stop OLD → NEW, created STOPPED, gets OLD's offset → NEW runs → once it is
    past the log that OLD's publication had let through, OLD is deleted → NEW's config is the rendered one

Every step looks before it acts: after an interruption the same command goes on. At no time can both run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_kit.backfill import log_position
from outbox_kit.backfill.foreign_connector import OldConnector, offset_of, read_old, refuse_other_outbox
from outbox_kit.changes import System
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.connect.confirmed_writes import confirmed, sent
from outbox_kit.deployment import SYSTEMS, Deployment, apply, make_plan, prepare
from outbox_kit.deployment.guard import refuse_other_cluster
from outbox_kit.deployment.plan import read_database
from outbox_kit.deployment.refusals import refuse_dangerous
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.advisory_lock import exclusive
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

# What the new connector needs. It cannot be planned itself while the old one has its slot.
BEFORE_CONNECT: tuple[System, ...] = ("postgres", "kafka", "registry")
RELEASE_TIMEOUT_S = 60
# The log may still hold updates and deletes of outbox rows, which OLD's router dropped and OutboxRouter refuses.
ONLY_INSERTS = {"skipped.operations": "u,d,t"}


@dataclass(frozen=True)
class Adopted:
    """What was taken over."""

    connector: str
    old: str
    offset: dict[str, Any]


def adopt(deployment: Deployment, old_name: str, progress: Progress) -> Adopted:
    """Let the pipeline's connector go on where connector `old_name` stands, and delete that one.

    Raises RefusedError, RejectedError, ConfigurationError, UnreachableError, WaitTimeoutError.
    """
    with exclusive(deployment.environment.source, deployment.pipeline.name):
        old = read_old(deployment, old_name)
        _refuse_both(deployment, old)
        _refuse_database(deployment, old)
        refuse_other_cluster(deployment, deployment.lock(), SYSTEMS)
        config = _config(deployment, _prepare(deployment, progress))
        _refuse_config(deployment, config, progress)
        offset = _move(deployment, old, config, progress)
    apply(deployment, progress)
    return Adopted(deployment.pipeline.connector.name, old.name, offset)


def _prepare(deployment: Deployment, progress: Progress) -> Lock:
    plan = make_plan(deployment, only=BEFORE_CONNECT)
    refuse_dangerous(plan, ())
    return prepare(deployment, plan, progress)


def _config(deployment: Deployment, lock: Lock) -> dict[str, str]:
    """As apply writes it, but for what the log may still hold; fingerprint and mark are those of this config."""
    return with_fingerprint(deployment.pipeline.name, deployment.render(lock) | ONLY_INSERTS)


def _refuse_config(deployment: Deployment, config: dict[str, str], progress: Progress) -> None:
    """Before the old connector stops, the worker must take the new one's config; it has, where that is there."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    if client.config(name) is None:
        connect_lifecycle.refuse_missing_plugins(client, config)
        connect_lifecycle.refuse_invalid(client, name, config, progress=progress)


def _move(deployment: Deployment, old: OldConnector, config: dict[str, str], progress: Progress) -> dict[str, Any]:
    """Hand over, and delete the old connector; returns the offset at which the new one began."""
    source, name = deployment.pipeline.source, deployment.pipeline.connector.name
    with postgres_client.connected(deployment.environment.source) as connection:
        reached = log_position.settled(connection)
        if old.publication != source.publication and old.runs:
            progress(f"wait until connector {old.name} is past the making of publication")
            log_position.wait_passed(connection, source.slot, reached, old.name)
        offset = _hand_over(deployment, connection, old, config, progress)
        # The old one goes last: as long as it is there, nothing but this command goes on.
        progress(f"wait until connector {name} is past the old publication's log")
        log_position.wait_passed(connection, source.slot, reached, name)
    progress(f"delete connector {old.name}")
    connect_lifecycle.remove(deployment.connect, old.name, progress=progress)
    return offset


def _refuse_both(deployment: Deployment, old: OldConnector) -> None:
    """One slot is read by one connector: the new one may be there only if an earlier run made it."""
    name = deployment.pipeline.connector.name
    if old.name == name:
        raise RefusedError(f"connector {name!r} is the pipeline's own", "give connector.name another name")
    if old.runs and deployment.connect.config(name) is not None:
        raise RefusedError(
            f"connectors {old.name!r} and {name!r} are both there, and {old.name!r} runs",
            f"stop one of them; if {name!r} has never run, delete it",
        )


def _refuse_database(deployment: Deployment, old: OldConnector) -> None:
    """Slot and publication must be there: made now, they would begin after what the old connector has not sent."""
    database = read_database(deployment)
    source = deployment.pipeline.source
    if database.slot is None or database.publication is None:
        what = f"slot {source.slot!r}" if database.slot is None else f"publication {source.publication!r}"
        raise RefusedError(f"there is no {what} in database {database.database!r}", "see docs/migrating.md")
    lock = deployment.lock()
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source if lock else None)
    refuse_other_outbox(deployment, old, database)


def _hand_over(
    deployment: Deployment,
    connection: postgres_client.Connection,
    old: OldConnector,
    config: dict[str, str],
    progress: Progress,
) -> dict[str, Any]:
    """Stop the old connector, give its offset to the new one, and let that run."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    progress(f"stop connector {old.name}")
    connect_lifecycle.stop(client, old.name, progress=progress)
    created = client.config(name) is None
    if created:
        _wait_released(connection, deployment.pipeline.source.slot)
        _create(deployment, config, progress)
    offset = offset_of(deployment, old)
    # What one just made has is the position of an earlier connector of its name: Connect keeps it.
    if created or not _offsets(deployment):
        progress(f"connector {name} goes on at lsn {offset['lsn']}")
        _seed(deployment, offset, progress)
    sent(lambda: client.resume(name), progress)
    progress(f"wait for connector {name} to run")
    connect_lifecycle.wait_running(client, name)
    return offset


def _create(deployment: Deployment, config: dict[str, str], progress: Progress) -> None:
    client, name = deployment.connect, deployment.pipeline.connector.name
    progress(f"create connector {name}")
    write = lambda: client.create_stopped(name, config)  # noqa: E731 - named for the next line
    confirmed(f"create connector {name}", write, lambda: connect_lifecycle.has_config(client, name, config), progress)


def _seed(deployment: Deployment, offset: dict[str, Any], progress: Progress) -> None:
    """Give the new connector the old one's position, whatever it has."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    connect_lifecycle.stop(client, name, progress=progress)
    write = lambda: client.patch_offsets(name, {"server": deployment.pipeline.prefix}, offset)  # noqa: E731
    confirmed(f"seed the offsets of {name}", write, lambda: offset in _offsets(deployment), progress)


def _offsets(deployment: Deployment) -> list[dict[str, Any]]:
    """Of the new connector, under the pipeline's prefix: under another one Debezium does not find them."""
    partition = {"server": deployment.pipeline.prefix}
    entries = deployment.connect.offsets(deployment.pipeline.connector.name)
    return [entry["offset"] for entry in entries if entry["partition"] == partition and entry["offset"]]


def _wait_released(connection: postgres_client.Connection, slot: str) -> None:
    def look() -> Seen[bool]:
        found = postgres_client.slot(connection, slot)
        active = found is not None and found["active"]
        return Seen(None if active else True, "it is read")

    hint = "another connector reads it: see pg_stat_replication"
    wait_for(f"slot {slot} to be given up", look, seconds=RELEASE_TIMEOUT_S, hint=hint)
