"""Start of a relay process, and its recovery from errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event

from outbox_events.contract.partitioner import partition_of
from outbox_events.waiting import Deadline
from outbox_kit.deployment import Deployment
from outbox_kit.encoding import RecordEncoder
from outbox_kit.errors import ConfigurationError, OutboxError, RefusedError, RejectedError, UnreachableError
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client
from outbox_kit.postgres.advisory_lock import pipeline_lock
from outbox_kit.relay import epochs, tables
from outbox_kit.relay.columns import require_columns
from outbox_kit.relay.delivered_rows import refuse_delivered_rows
from outbox_kit.relay.metrics import Backlog, Counters, MetricsFile
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import RelayTables
from outbox_kit.relay.worker import Worker
from outbox_kit.results.progress import Reporter

LOCK_TIMEOUT_S = 60
MAX_BACKOFF_S = 10.0
GIVE_UP_S = 300
"""Time without a sent batch after which the process ends with the error."""


@dataclass(frozen=True)
class RelayOptions:
    """Options of one process."""

    marks: bool = False
    once: bool = False
    batch_rows: int = 500
    interval: float = 0.1
    with_connect: bool = True
    metrics_file: Path | None = None


def run_relay(deployment: Deployment, options: RelayOptions, stop: Event, progress: Reporter) -> Counters:
    """Send rows until `stop` is set or, with `once`, no row is left. Return what was sent.

    Raises RefusedError if the connector runs, ConfigurationError, after GIVE_UP_S UnreachableError, RejectedError, and
    with `once` WaitTimeoutError if another process holds a bucket and does not send its rows.
    """
    lock = deployment.lock()
    if lock is None:
        raise ConfigurationError(f"lock file {deployment.lock_file} does not exist", "run `outbox apply`")
    if options.with_connect:
        refuse_running_connector(deployment)
    encoder = RecordEncoder(deployment.pipeline, lock, partition_of)
    relay_tables = RelayTables(deployment.pipeline, options.marks)
    prepare(deployment, lock, relay_tables, progress, with_connect=options.with_connect)
    counters = Counters()
    name, path = deployment.pipeline.name, options.metrics_file
    metrics = None if path is None else MetricsFile(path, name, counters, progress)
    _run_sessions(deployment, options, relay_tables, encoder, stop, progress, counters, metrics)
    if metrics is not None:
        metrics.write(Backlog())
    return counters


def refuse_running_connector(deployment: Deployment) -> None:
    """Raise RefusedError unless the connector is stopped or does not exist."""
    name = deployment.pipeline.connector.name
    status = deployment.connect.status(name)
    if status is not None and status.connector_state != "STOPPED":
        problem = f"the connector of the same table is not stopped: {name}, {status.text}"
        raise RefusedError(problem, "run `outbox stop`, then start the relay again")


def prepare(
    deployment: Deployment, lock: Lock, relay_tables: RelayTables, progress: Reporter, *, with_connect: bool
) -> None:
    """Create tables and index, and set the source epoch."""
    source, name = deployment.environment.source, deployment.pipeline.name
    with (
        pipeline_lock(source, name, command="relay", seconds=LOCK_TIMEOUT_S),
        client.connected(source) as connection,
    ):
        tables.create(connection, relay_tables)
        epochs.refuse_other_pipeline(connection, relay_tables)
        epoch = epochs.required_epoch(deployment, lock, connection, relay_tables, with_connect=with_connect)
        if epoch != client.read_relay_epoch(connection, relay_tables.outbox_name):
            if with_connect and lock.config is not None:
                refuse_delivered_rows(deployment, connection, relay_tables)
            epochs.write_epoch(connection, relay_tables, epoch)
            progress(f"source epoch {epoch}: the states of the relay replace those of the connector")


def _run_sessions(
    deployment: Deployment,
    options: RelayOptions,
    relay_tables: RelayTables,
    encoder: RecordEncoder,
    stop: Event,
    progress: Reporter,
    counters: Counters,
    metrics: MetricsFile | None,
) -> None:
    """Run sessions until one ends without error. After an error, wait up to MAX_BACKOFF_S and start the next."""
    deadline, backoff, batches = Deadline(GIVE_UP_S), options.interval, counters.batches
    while True:
        try:
            with client.connected(deployment.environment.source) as connection:
                types = client.read_column_types(connection, relay_tables.outbox_name)
                require_columns(connection, relay_tables, types)
                epoch = epochs.raise_on_other_server(deployment, connection, relay_tables)
                if epoch is not None:
                    progress(f"source epoch {epoch}: the database was restored or has failed over")
                reader = RowReader(relay_tables, types)
                worker = Worker(
                    deployment, connection, reader, encoder, options.batch_rows, stop, progress, counters, metrics
                )
                worker.run(once=options.once, interval=options.interval)
            return
        except (UnreachableError, RejectedError) as error:
            counters.errors += 1
            if metrics is not None:
                metrics.write(Backlog())
            if counters.batches > batches:
                deadline, backoff, batches = Deadline(GIVE_UP_S), options.interval, counters.batches
            _wait(error, stop, deadline, backoff, progress)
            backoff = min(2 * backoff, MAX_BACKOFF_S)
        if stop.is_set():
            return


def _wait(error: OutboxError, stop: Event, deadline: Deadline, seconds: float, progress: Reporter) -> None:
    if not deadline.seconds_left:
        raise error
    progress(f"{error.message}; next attempt in {seconds:g} s")
    stop.wait(seconds)
