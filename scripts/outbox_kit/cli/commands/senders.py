"""Implement `outbox senders`, with the subcommands list and recover."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated

import psycopg
import typer
from confluent_kafka import KafkaException

from outbox_events.errors import OutboxError, RefusedError
from outbox_events.producing import delivery_proof, recovery_store
from outbox_events.producing.delivery_proof import MIN_AGE_S
from outbox_events.producing.unfinished import UnfinishedSender, recover_sender, unfinished_senders
from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.dead_letters.topic_owner import owner_of
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import client_settings
from outbox_kit.postgres import client as postgres_client

app = typer.Typer(help="List and recover services that send without a connector.", no_args_is_help=True)
StoreOption = Annotated[
    str, typer.Option("--store-table", metavar="TABLE", help="Table of the recovery stores, if it exists.")
]
ProofOption = Annotated[
    str, typer.Option("--proof-table", metavar="TABLE", help="Table of the unproven records, if it exists.")
]


@app.command("list")
@common_options("output")
def list_senders(
    common: CommonOptions,
    store_table: StoreOption = recovery_store.DEFAULT_TABLE,
    proof_table: ProofOption = delivery_proof.DEFAULT_TABLE,
) -> None:
    """List senders that have left records or transactions.

    The list contains saved records and prepared transactions. Running senders have them for a short time.
    """
    with (
        common.deployment(reads=["postgres", "kafka"]) as deployment,
        postgres_client.connected(deployment.environment.source) as connection,
    ):
        senders = unfinished_senders(connection, store_table=store_table, proof_table=proof_table)
    documents = [_to_dict(entry) for entry in senders]
    if common.output is Output.JSON:
        print_json({"senders": documents})
    elif senders:
        print_table([*documents[0]], [[*map(str, document.values())] for document in documents])
    print_message(f"{plural(len(senders), 'sender')} with saved records or prepared transactions")


def _to_dict(entry: UnfinishedSender) -> dict[str, object]:
    since = datetime.fromtimestamp(entry.since, UTC).isoformat(timespec="seconds")
    return {**dataclasses.asdict(entry), "topics": ", ".join(entry.topics), "since": since}


@app.command()
@common_options("yes")
def recover(
    common: CommonOptions,
    sender: Annotated[str | None, typer.Argument(metavar="SENDER", help="Sender shown by `senders list`.")] = None,
    recover_all: Annotated[
        bool, typer.Option("--all", help="Recover all senders that send to topics of the pipeline.")
    ] = False,
    older_than: Annotated[
        float,
        typer.Option("--older-than", min=0, metavar="SECONDS", help="With --all, skip senders without older rows."),
    ] = 900,
    store_table: StoreOption = recovery_store.DEFAULT_TABLE,
    proof_table: ProofOption = delivery_proof.DEFAULT_TABLE,
) -> None:
    """Recover senders that do not start again.

    The command runs the recovery that a sender runs when it starts. It fences a process that still uses the
    transactional.id of such a sender, and asks for confirmation. Exit with code 1 if a recovery fails, or if records or
    prepared transactions remain.
    """
    if recover_all == (sender is not None):
        raise typer.BadParameter("exactly one of SENDER and --all is required", param_hint="SENDER")
    with (
        common.deployment(writes=["postgres", "kafka"]) as deployment,
        postgres_client.connected(deployment.environment.source) as connection,
    ):
        found = unfinished_senders(connection, store_table=store_table, proof_table=proof_table)
        owners = _owners(deployment, found)
        if sender is None:
            chosen = _select_old(found, owners, deployment.pipeline.prefix, older_than)
        else:
            chosen = _select_named(found, owners, deployment.pipeline.prefix, sender)
        if chosen:
            names = ", ".join(f"{entry.sender!r} ({entry.way})" for entry in chosen)
            confirm(common, deployment, f"Recover and fence {names}", hint="run `outbox senders list`, then add --yes")
        recovered = sum([_recover(deployment, connection, entry) for entry in chosen])
    print_message(f"{recovered} of {plural(len(chosen), 'sender')} recovered")
    if recovered < len(chosen):
        raise typer.Exit(exit_codes.ERROR)


def _owners(deployment: Deployment, senders: Collection[UnfinishedSender]) -> dict[str, str | None]:
    """Return a mapping from the topics of the senders to the prefixes of the pipelines to which they belong."""
    existing_topics = [*deployment.kafka.topics(), deployment.pipeline.acknowledgement_topic]
    return {topic: owner_of(topic, existing_topics) for entry in senders for topic in entry.topics}


def _select_old(
    found: Collection[UnfinishedSender], owners: Mapping[str, str | None], prefix: str, older_than: float
) -> list[UnfinishedSender]:
    """Return the senders that have left old rows and send to topics of the pipeline. Print the other old senders."""
    chosen = []
    for entry in found:
        if entry.since > time.time() - older_than:
            continue
        prefixes = {owners[topic] for topic in entry.topics}
        if prefix in prefixes:
            chosen.append(entry)
        else:
            hint = _owner_hint(prefixes) or "name it to recover it"
            print_message(f"{entry.sender!r} sends to {', '.join(entry.topics)}: {hint}")
    return chosen


def _select_named(
    found: Collection[UnfinishedSender], owners: Mapping[str, str | None], prefix: str, sender: str
) -> list[UnfinishedSender]:
    """Return what the sender has left. Raises RefusedError if there is nothing, or if only other pipelines own it.

    A sender whose topics belong to no pipeline can be recovered with any pipeline.
    """
    chosen = [entry for entry in found if entry.sender == sender]
    if not chosen:
        raise RefusedError(f"sender {sender!r} has left nothing", "run `outbox senders list`")
    topics = sorted({topic for entry in chosen for topic in entry.topics})
    prefixes = {owners[topic] for topic in topics}
    hint = _owner_hint(prefixes)
    if hint and prefix not in prefixes:
        raise RefusedError(f"sender {sender!r} sends to {', '.join(topics)}, not to topics of this pipeline", hint)
    return chosen


def _owner_hint(prefixes: Collection[str | None]) -> str:
    """Return the hint to use the pipeline with one of the prefixes; empty if there is none."""
    names = sorted(filter(None, prefixes))
    return f"run the command with the pipeline that has prefix {' or '.join(names)} (-p)" if names else ""


def _recover(deployment: Deployment, connection: postgres_client.Connection, entry: UnfinishedSender) -> bool:
    """Recover a sender, and print the result. Return False if the recovery failed or if records remain."""
    try:
        result = dataclasses.asdict(recover_sender(connection, entry, client_settings(deployment.environment.kafka)))
    except OutboxError as error:
        print_message(f"{entry.sender} ({entry.way}): {error.message}; {error.hint}")
        return False
    except (psycopg.Error, KafkaException) as error:
        print_message(f"{entry.sender} ({entry.way}): {type(error).__name__}; run the command again")
        return False
    counts = ", ".join(f"{key} {value}" for key, value in result.items() if value)
    print_message(f"{entry.sender} ({entry.way}): {counts or 'nothing to recover'}")
    if skipped := result.get("skipped"):
        print_message(f"{plural(skipped, 'record')} saved in the last {MIN_AGE_S:g} s: run the command again later")
    return not any(result.get(name) for name in ("undecided", "missing_topics", "rejected", "skipped"))
