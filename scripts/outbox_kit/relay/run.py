"""Run a relay process, which starts a new session after an error."""

from __future__ import annotations

from concurrent.futures import wait
from threading import Event

from outbox_events import limited_calls
from outbox_events.contract.partitioner import partition_of
from outbox_events.errors import ConfigurationError, RefusedError, RejectedError, UnreachableError, WaitTimeoutError
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.preconditions import refuse_reader_elsewhere
from outbox_kit.deployment.source_epochs import refuse_relay_of_other_pipeline
from outbox_kit.encoding import RecordEncoder
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client
from outbox_kit.postgres.advisory_lock import pipeline_lock
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.relay import epochs, tables, unread_rows
from outbox_kit.relay.failures import Failures
from outbox_kit.relay.metrics import Backlog, Counters, MetricsFile
from outbox_kit.relay.preconditions import (
    refuse_delivered_rows,
    refuse_other_senders,
    refuse_published_table,
    require_columns,
)
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import RelayTables
from outbox_kit.relay.worker import RelayOptions, RelayProcess, Worker
from outbox_kit.results import Reporter

LOCK_TIMEOUT_S = 60
POLL_S = 0.2
STOP_S = 8.0
"""Time that the process has to complete its batches after it was stopped. Docker kills a container after 10 s."""


def run_relay(deployment: Deployment, options: RelayOptions, stop: Event, progress: Reporter) -> Counters:
    """Send rows until `stop` is set or, with `once`, until all rows are sent. Return the counters of sent records.

    Raises ConfigurationError, RefusedError if another pipeline or a connector can send the rows, and UnreachableError
    and RejectedError after GIVE_UP_S, or when the process stops while a bucket fails. Raises WaitTimeoutError if the
    process does not end within STOP_S after `stop` is set or, with `once`, if another process holds a bucket and does
    not send its rows.
    """
    lock = deployment.lock()
    if lock is None:
        raise ConfigurationError(f"lock file {deployment.lock_file} does not exist", "run `outbox apply`")
    if options.with_connect:
        refuse_other_senders(deployment)
    relay_tables = RelayTables(deployment.pipeline, options.marks)
    encoder = RecordEncoder(deployment.pipeline, lock, partition_of)
    counters, failures = Counters(), Failures(options.interval, progress)
    metrics = MetricsFile(options.metrics_file, deployment.pipeline.name, counters, progress)
    process = RelayProcess(deployment, options, relay_tables, encoder, stop, progress, counters, failures, metrics)
    try:
        _run_until_stopped(process, lock)
    finally:
        metrics.write(Backlog(failing=len(failures.by_bucket)))
    return counters


def _run_until_stopped(process: RelayProcess, lock: Lock) -> None:
    """Run the process in a thread, because calls of the Kafka client and of PostgreSQL can block a signal handler.

    Raises WaitTimeoutError if the thread has not ended STOP_S after `stop` was set.
    """

    def run() -> None:
        prepare(process, lock)
        _run_sessions(process, lock)

    future = limited_calls.start(run)
    while not (future.done() or process.stop.is_set()):
        wait([future], POLL_S)
    if wait([future], STOP_S).not_done:
        message = f"the relay did not complete its batches within {STOP_S:g} s"
        hint = "check the brokers and PostgreSQL; another process sends the claimed rows again"
        raise WaitTimeoutError(message, hint)
    future.result()


def prepare(process: RelayProcess, lock: Lock) -> None:
    """Create the relay's tables and index, and set the source epoch. Before, refuse the table of another pipeline."""
    deployment, relay_tables, with_connect = process.deployment, process.tables, process.options.with_connect
    source, name = deployment.environment.source, deployment.pipeline.name
    with (
        pipeline_lock(source, name, command="relay", seconds=LOCK_TIMEOUT_S),
        client.connected(source) as connection,
    ):
        relay = client.read_relay(connection, relay_tables.outbox_name)
        refuse_relay_of_other_pipeline(deployment.pipeline, relay, lock.cluster_id)
        current = relay.source_epoch
        if not current:
            refuse_published_table(connection, deployment, lock)
        if with_connect:
            refuse_reader_elsewhere(deployment, read_slot(connection, deployment.pipeline.source.slot))
        _create_tables(process, lock, connection)
        epoch = epochs.required_epoch(deployment, lock, connection, relay_tables, with_connect=with_connect)
        if epoch != current:
            if with_connect and lock.config is not None:
                refuse_delivered_rows(deployment, connection, relay_tables)
            epochs.write_epoch(connection, relay_tables, epoch, lock.cluster_id)
            process.progress(f"source epoch {epoch}: the states of the relay replace those of the connector")
        unread_rows.start(connection, relay_tables, is_first_sender=lock.config is None and not current)


def _create_tables(process: RelayProcess, lock: Lock, connection: Connection) -> None:
    """Create the missing tables, and report a slot that nobody reads."""
    source = process.deployment.pipeline.source
    if lock.source is None and source.uses_table and not client.read_column_types(connection, source.table):
        process.progress(f"create table {source.table}")
        tables.create_outbox(connection, process.tables)
    tables.create(connection, process.tables)
    if (slot := read_slot(connection, source.slot)) is not None and not slot.active:
        process.progress(
            f"slot {slot.name} retains WAL, but no connector reads it: unless the connector is started again, run "
            f"`select pg_drop_replication_slot('{slot.name}')`"
        )


def _run_sessions(process: RelayProcess, lock: Lock) -> None:
    """Run sessions until one ends without an error. After an error, wait up to MAX_BACKOFF_S, then start a new one.

    Raises the last error of a bucket that is still failing when the process stops.
    """
    failures = process.failures
    while not process.stop.is_set():
        try:
            _run_session(process, lock)
            break
        except (UnreachableError, RejectedError) as error:
            process.counters.errors += 1
            process.metrics.write(Backlog(failing=len(failures.by_bucket)))
            if failures.is_over_limit(each=process.options.once):
                raise
            process.stop.wait(failures.add_session(error))
    failures.raise_last()


def _run_session(process: RelayProcess, lock: Lock) -> None:
    with client.connected(process.deployment.environment.source) as connection:
        _refuse_other_table(process, lock, connection)
        types = client.read_column_types(connection, process.tables.outbox_name)
        require_columns(connection, process.tables, types)
        epoch = epochs.raise_on_other_server(process.deployment, connection, process.tables)
        if epoch is not None:
            process.progress(f"source epoch {epoch}: the database was restored or has failed over")
        Worker(process, connection, RowReader(process.tables, types)).run()


def _refuse_other_table(process: RelayProcess, lock: Lock, connection: Connection) -> None:
    """Raise RefusedError if the address leads to the table of another pipeline since the process was started."""
    table = process.tables.outbox_name
    relay = client.read_relay(connection, table)
    refuse_relay_of_other_pipeline(process.deployment.pipeline, relay, lock.cluster_id)
    if not relay.source_epoch:
        message = f"no relay was started for table {table} in the database to which the relay connected again"
        raise RefusedError(message, "check source.host; if the database was replaced, start the relay again")
