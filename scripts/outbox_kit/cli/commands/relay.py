"""outbox relay."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

import typer

from outbox_events.text import plural
from outbox_kit.cli.console import print_message
from outbox_kit.cli.options import CommonOptions, common_options
from outbox_kit.deployment.identity import IDENTIFIED_SYSTEMS, refuse_foreign_systems
from outbox_kit.relay import RelayOptions, run_relay
from outbox_kit.results.changes import System


@common_options()
def relay(
    common: CommonOptions,
    after_send: Annotated[
        Literal["delete", "mark"],
        typer.Option(
            "--after-send",
            help="Delete sent rows, or set their relayed_at column. All relay processes must use the same value.",
        ),
    ] = "delete",
    once: Annotated[bool, typer.Option("--once", help="Send the existing rows, then exit.")] = False,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=10_000, help="Send at most this many rows per batch.")
    ] = 500,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=1, max=5_000, help="Wait this long when there are no rows to send.")
    ] = 100,
    no_connect: Annotated[
        bool, typer.Option("--no-connect", help="Do not query Kafka Connect for connectors that read the table.")
    ] = False,
    metrics_file: Annotated[
        Path | None,
        typer.Option("--metrics-file", help="Write metrics to this file for the textfile collector of Prometheus."),
    ] = None,
) -> None:
    """Send outbox rows by polling the table, without the connector.

    Several relay processes can share the table. To stop a process, send SIGTERM; the process completes its batch and
    exits. The command fails if a connector can send the rows.
    """
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options = RelayOptions(after_send == "mark", once, batch, interval_ms / 1000, not no_connect, metrics_file)
    with common.deployment(shows_waiting=False) as deployment:
        systems: tuple[System, ...] = ("postgres", "kafka")
        compared = [system for system in IDENTIFIED_SYSTEMS if system != "connect" or not no_connect]
        refuse_foreign_systems(deployment, print_message, needs=systems, compared=compared)
        counters = run_relay(deployment, options, stop, print_message)
    print_message(f"{plural(counters.sent, 'record')} sent, {plural(counters.dead_letters, 'dead letter')}")
