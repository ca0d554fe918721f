"""Implement `outbox adopt`, which replaces another tool's Debezium connector (OLD) with the pipeline's connector (NEW).

Rows are neither lost nor sent twice.

    checks → topics, schemas, lock file → stop OLD → create NEW in state STOPPED → write OLD's offset to NEW → start NEW
    → wait until NEW has confirmed the WAL from before OLD stopped → delete OLD → write the rendered config to NEW

Every step first reads the actual state, so the command can be repeated after an interruption. OLD and NEW never
run at the same time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from outbox_events.errors import RefusedError
from outbox_kit.backfill.foreign_connector import ForeignConnector, offset_of, read_foreign, refuse_different_outbox
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.apply import refuse_invalid, refuse_missing_plugins
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.connect.offset_seeding import offset_of_prefix, write_offset
from outbox_kit.connect.write_requests import send_request
from outbox_kit.deployment import SYSTEMS, Deployment, apply, apply_prerequisites, make_plan
from outbox_kit.deployment.identity import names_of, refuse_wrong_cluster
from outbox_kit.deployment.preconditions import refuse_dangerous
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.replication_slot import wait_confirmed, wait_inactive, wait_transactions_ended
from outbox_kit.results import Reporter
from outbox_kit.results.changes import System

# Systems that are deployed before NEW. `make_plan` refuses to plan Connect while another connector (OLD) uses the slot.
SYSTEMS_BEFORE_CONNECT: tuple[System, ...] = ("postgres", "kafka", "registry")
# The WAL after OLD's offset can contain updates and deletes of outbox rows. They would stop the task of NEW.
SKIPPED_OPERATIONS = {"skipped.operations": "u,d,t"}


@dataclass(frozen=True)
class AdoptResult:
    """Names of the new and the replaced connector, and the source offset at which the new connector started."""

    connector: str
    old: str
    offset: dict[str, Any]


def adopt(deployment: Deployment, old_name: str, progress: Reporter, *, allow: Collection[str] = ()) -> AdoptResult:
    """Stop connector `old_name`, start the pipeline's connector at the same offset, and delete connector `old_name`.

    Nothing is changed if the plan contains a dangerous change whose object is not in `allow`.

    Raises RefusedError, RejectedError, ConfigurationError, UnreachableError, WaitTimeoutError.
    """
    with deployment.exclusive(f"adopt {old_name}", progress):
        refuse_wrong_cluster(deployment, deployment.lock(), SYSTEMS)
        old_connector = read_foreign(deployment, old_name)
        _refuse_conflicting_connectors(deployment, old_connector)
        _refuse_unsuitable_database(deployment, old_connector)
        plan = make_plan(deployment, only=SYSTEMS_BEFORE_CONNECT, takes_over=True)
        refuse_dangerous(plan, allow, f"outbox adopt {old_name}")
        lock = apply_prerequisites(deployment, plan, progress)
        rendered_config = deployment.render(lock)
        deployment.write_lock(lock.model_copy(update={"names": names_of(rendered_config)}))  # so that `stop` accepts it
        config = with_fingerprint(deployment.pipeline.name, rendered_config | SKIPPED_OPERATIONS)
        client, name = deployment.connect, deployment.pipeline.connector.name
        if client.config(name) is None:  # NEW does not exist: validate its config before OLD is stopped
            refuse_missing_plugins(client, config)
            refuse_invalid(client, name, config, progress=progress)
        offset = _replace_connector(deployment, old_connector, config, progress)
    apply(deployment, progress)
    return AdoptResult(name, old_connector.name, offset)


def _refuse_conflicting_connectors(deployment: Deployment, old_connector: ForeignConnector) -> None:
    """Raise RefusedError if OLD and NEW have the same name, or if NEW exists although OLD is RUNNING."""
    name = deployment.pipeline.connector.name
    if old_connector.name == name:
        raise RefusedError(
            f"connector {name!r} is the pipeline's own connector (connector.name), which adopt cannot replace",
            "give the name of the connector to replace, or set connector.name in the pipeline file to a new name",
        )
    if old_connector.is_running and deployment.connect.config(name) is not None:
        raise RefusedError(
            f"connector {name!r} exists although connector {old_connector.name!r}, which it replaces, is still RUNNING",
            f"delete {name!r} if it has never run, otherwise stop {old_connector.name!r}; then repeat the command",
        )


def _refuse_unsuitable_database(deployment: Deployment, old_connector: ForeignConnector) -> None:
    """Raise RefusedError if the slot or publication is missing. Creating it would lose rows that OLD has not sent."""
    database, source = deployment.read_database(), deployment.pipeline.source
    if database.slot is None:
        hint = f"set source.slot to the slot that connector {old_connector.name!r} uses; see docs/migrating.md"
        raise RefusedError(f"slot {source.slot!r} does not exist in database {database.database!r}", hint)
    if database.publication is None:
        hint = "create it (see docs/migrating.md), or set source.publication to a publication of the outbox table only"
        raise RefusedError(f"publication {source.publication!r} does not exist in database {database.database!r}", hint)
    lock = deployment.lock()
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source if lock else None)
    refuse_different_outbox(deployment, old_connector, database)


def _replace_connector(
    deployment: Deployment, old_connector: ForeignConnector, config: dict[str, str], progress: Reporter
) -> dict[str, Any]:
    """Stop OLD, start the pipeline's connector at OLD's offset, delete OLD, and return the offset."""
    source, name, old_name = deployment.pipeline.source, deployment.pipeline.connector.name, old_connector.name
    with postgres_client.connected(deployment.environment.source) as connection:
        end_lsn = wait_transactions_ended(connection)
        if old_connector.publication != source.publication and old_connector.is_running:
            progress(f"wait until connector {old_name} has read the creation of publication {source.publication}")
            wait_confirmed(connection, source.slot, end_lsn, old_name)
        offset = _switch_connectors(deployment, connection, old_connector, config, progress)
        # OLD is deleted last: while OLD exists, `outbox apply` refuses to run and `outbox adopt` can be repeated.
        progress(f"wait until connector {name} has confirmed the WAL from before {old_name} was stopped")
        wait_confirmed(connection, source.slot, end_lsn, name)
    progress(f"delete connector {old_name}")
    connect_lifecycle.remove(deployment.connect, old_name, progress=progress)
    return offset


def _switch_connectors(
    deployment: Deployment,
    connection: postgres_client.Connection,
    old_connector: ForeignConnector,
    config: dict[str, str],
    progress: Reporter,
) -> dict[str, Any]:
    """Stop OLD, write its offset to the pipeline's connector, start that connector, and return the offset."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    progress(f"stop connector {old_connector.name}")
    connect_lifecycle.stop(client, old_connector.name, progress=progress)
    is_new = client.config(name) is None
    if is_new:
        wait_inactive(connection, deployment.pipeline.source.slot)
        progress(f"create connector {name}")
        connect_lifecycle.put_config(client, name, config, progress, create=True)
    offset = offset_of(deployment, old_connector)
    prefix = deployment.pipeline.prefix
    # A new connector can have offsets, because Connect keeps the offsets of a deleted connector with the same name.
    if is_new or not offset_of_prefix(client.offsets(name), prefix):
        progress(f"start connector {name} at lsn {offset['lsn']}")
        connect_lifecycle.stop(client, name, progress=progress)
        write_offset(client, name, prefix, offset, progress)
    send_request(lambda: client.resume(name), progress)
    progress(f"wait for connector {name} to be RUNNING")
    connect_lifecycle.wait_for_state(client, name)
    return offset
