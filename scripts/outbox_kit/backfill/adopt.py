"""adopt: replace a running Debezium connector that outbox-kit did not create (OLD) by the pipeline's connector (NEW).

No row is lost, and no row is sent twice.

    checks → topics, schemas, lock file → stop OLD → NEW, created STOPPED, gets OLD's offset → NEW runs → when it has
    confirmed the WAL that OLD's publication had filtered, OLD is deleted → NEW gets the rendered config

Every step reads the actual state first, so that the command can be repeated after an interruption. The two connectors
never run at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_kit.backfill.foreign_connector import ForeignConnector, offset_of, read_foreign, refuse_different_outbox
from outbox_kit.changes import System
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.apply import refuse_invalid, refuse_missing_plugins
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.connect.confirmed_writes import send_request
from outbox_kit.connect.offset_seeding import offset_of_prefix, write_offset
from outbox_kit.deployment import SYSTEMS, Deployment, apply, apply_prerequisites, make_plan
from outbox_kit.deployment.preconditions import refuse_dangerous, refuse_wrong_cluster
from outbox_kit.errors import RefusedError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.advisory_lock import exclusive
from outbox_kit.postgres.replication_slot import wait_confirmed, wait_inactive, wait_transactions_ended
from outbox_kit.progress import Reporter

# Systems that NEW requires. NEW itself cannot be planned while OLD uses the slot.
BEFORE_CONNECT: tuple[System, ...] = ("postgres", "kafka", "registry")
# The WAL may still contain updates and deletes of outbox rows. OLD's router ignores them, OutboxRouter rejects them.
ONLY_INSERTS = {"skipped.operations": "u,d,t"}


@dataclass(frozen=True)
class AdoptResult:
    """Names of the new and the old connector, and the offset at which the new connector started."""

    connector: str
    old: str
    offset: dict[str, Any]


def adopt(deployment: Deployment, old_name: str, progress: Reporter) -> AdoptResult:
    """Start the pipeline's connector at the offset of connector `old_name`, and delete the old connector.

    Raises RefusedError, RejectedError, ConfigurationError, UnreachableError, WaitTimeoutError.
    """
    with exclusive(deployment.environment.source, deployment.pipeline.name):
        old = read_foreign(deployment, old_name)
        _refuse_two_connectors(deployment, old)
        _refuse_database(deployment, old)
        refuse_wrong_cluster(deployment, deployment.lock(), SYSTEMS)
        plan = make_plan(deployment, only=BEFORE_CONNECT)
        refuse_dangerous(plan, ())
        rendered = deployment.render(apply_prerequisites(deployment, plan, progress))
        config = with_fingerprint(deployment.pipeline.name, rendered | ONLY_INSERTS)
        client, name = deployment.connect, deployment.pipeline.connector.name
        if client.config(name) is None:  # validate NEW's config before OLD is stopped
            refuse_missing_plugins(client, config)
            refuse_invalid(client, name, config, progress=progress)
        offset = _replace(deployment, old, config, progress)
    apply(deployment, progress)
    return AdoptResult(name, old.name, offset)


def _refuse_two_connectors(deployment: Deployment, old: ForeignConnector) -> None:
    """Raise RefusedError for two connectors on the slot: only an interrupted run of adopt may have created NEW."""
    name = deployment.pipeline.connector.name
    if old.name == name:
        raise RefusedError(
            f"connector {name!r} is the connector of the pipeline",
            "set connector.name in the pipeline file to a different name",
        )
    if old.is_running and deployment.connect.config(name) is not None:
        raise RefusedError(
            f"connectors {old.name!r} and {name!r} both exist, and {old.name!r} is RUNNING",
            f"stop one of the two connectors; if {name!r} has never run, delete {name!r}",
        )


def _refuse_database(deployment: Deployment, old: ForeignConnector) -> None:
    """Raise RefusedError for a missing slot or publication: its replacement would omit rows that OLD has not sent."""
    database = deployment.read_database()
    source = deployment.pipeline.source
    if database.slot is None or database.publication is None:
        missing = f"slot {source.slot!r}" if database.slot is None else f"publication {source.publication!r}"
        raise RefusedError(f"{missing} does not exist in database {database.database!r}", "see docs/migrating.md")
    lock = deployment.lock()
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source if lock else None)
    refuse_different_outbox(deployment, old, database)


def _replace(
    deployment: Deployment, old: ForeignConnector, config: dict[str, str], progress: Reporter
) -> dict[str, Any]:
    """Start the new connector, delete the old one, and return the offset at which the new one started."""
    source, name = deployment.pipeline.source, deployment.pipeline.connector.name
    with postgres_client.connected(deployment.environment.source) as connection:
        end_lsn = wait_transactions_ended(connection)
        if old.publication != source.publication and old.is_running:
            progress(f"wait until connector {old.name} has read the creation of publication {source.publication}")
            wait_confirmed(connection, source.slot, end_lsn, old.name)
        offset = _switch_connectors(deployment, connection, old, config, progress)
        # The old connector is deleted last: while it exists, `outbox apply` refuses to run, and adopt can be repeated.
        progress(f"wait until connector {name} has read the WAL of publication {old.publication}")
        wait_confirmed(connection, source.slot, end_lsn, name)
    progress(f"delete connector {old.name}")
    connect_lifecycle.remove(deployment.connect, old.name, progress=progress)
    return offset


def _switch_connectors(
    deployment: Deployment,
    connection: postgres_client.Connection,
    old: ForeignConnector,
    config: dict[str, str],
    progress: Reporter,
) -> dict[str, Any]:
    """Stop the old connector, write its offset to the new one, and start the new one."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    progress(f"stop connector {old.name}")
    connect_lifecycle.stop(client, old.name, progress=progress)
    is_new = client.config(name) is None
    if is_new:
        wait_inactive(connection, deployment.pipeline.source.slot)
        progress(f"create connector {name}")
        connect_lifecycle.put_config(client, name, config, progress, create=True)
    offset = offset_of(deployment, old)
    prefix = deployment.pipeline.prefix
    # Connect keeps the offsets of a deleted connector for the next connector of that name, so they are replaced.
    if is_new or not offset_of_prefix(client.offsets(name), prefix):
        progress(f"start connector {name} at lsn {offset['lsn']}")
        connect_lifecycle.stop(client, name, progress=progress)
        write_offset(client, name, prefix, offset, progress)
    send_request(lambda: client.resume(name), progress)
    progress(f"wait for connector {name} to be RUNNING")
    connect_lifecycle.wait_for_state(client, name)
    return offset
