"""A pipeline file that was copied, without its lock file, must not change the objects of the first pipeline."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import requests
import yaml
from tests.integration.support import CommandResult, Deploy, Outbox, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.waiting import wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.stack import Stack
from outbox_kit.stack.health_checks import check_connect
from outbox_kit.stack.ports import free_port
from outbox_kit.stack.processes import find_processes, process_marker
from outbox_kit.stack.services.connect import PASSWORD_VARIABLE
from outbox_kit.stack.state import StackState

NAME, COPY = "first_owner", "copied_owner"
OWN = {"prefix": COPY, "source/slot": f"{COPY}_s", "source/publication": f"{COPY}_p", "connector/name": COPY}
UNREACHABLE_CONNECT = (
    *("--set", "environment.connect.url=http://127.0.0.1:1"),
    *("--set", "environment.connect.workers=[]"),
)
UNREACHABLE_KAFKA = ("--set", "environment.kafka.bootstrap_servers=127.0.0.1:1")


APPLIES = (*(("apply", "--yes", "--only", system) for system in ("postgres", "kafka", "registry")), ("apply", "--yes"))
COMMANDS: tuple[tuple[str, ...], ...] = (
    *APPLIES,
    *((name,) for name in ("restart", "pause", "resume", "stop")),
    ("destroy", "--delete-topics", "--delete-schemas", "--drop-slot", "--confirm", f"{COPY}@local"),
    ("dead-letter", "drop", "--all", "--purge", "--yes", "--topic", f"{NAME}.dead-letter"),
    ("prune", "--older-than", "0s", "--all", "--confirm", f"{COPY}@local"),
    ("backfill", "book", "--restart"),
    ("stuck", "--resend", "--yes"),
)


@pytest.fixture(scope="module")
def first(deploy_once: Deploy, source_dsn: str) -> Deployment:
    """The first pipeline, with a connector that has sent a record to a topic."""
    deployment = deploy_once(NAME)
    key = str(uuid4())
    event_id = send(source_dsn, "book", key, book(key), table=f"public.{NAME}_event")
    wait_record(deployment, f"{NAME}.book", deployment.pipeline.aggregates["book"].partitions, event_id)
    return deployment


@pytest.fixture
def other_cluster(stack: Stack, state: StackState, tmp_path: Path) -> Iterator[str]:
    """Start the worker of a second Connect cluster at the same Kafka, and return the URL of its REST API."""
    [worker] = find_processes(stack.layout, ("connect",))
    arguments = Path(f"/proc/{worker.pid}/cmdline").read_text().rstrip("\0").split("\0")
    port, settings = str(free_port(state.ports.values())), Path(arguments[-1]).read_text()
    settings = settings.replace(str(state.ports["connect"]), port).replace("outbox-connect", "other-connect")
    (tmp_path / "connect.properties").write_text(settings)
    marker = process_marker(stack.layout, "connect")
    arguments = [argument.replace(marker, marker.replace("/connect", "/other")) for argument in arguments[:-1]]
    url, secrets = f"http://127.0.0.1:{port}", {PASSWORD_VARIABLE: state.connector_password}
    log = (tmp_path / "connect.log").open("wb")
    with (
        log,
        subprocess.Popen(
            [*arguments, str(tmp_path / "connect.properties")], env={**os.environ, **secrets}, stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_for("the second Connect cluster", lambda: check_connect(url, ()), seconds=120)
            yield url
        finally:
            process.terminate()


@pytest.fixture
def copy(first: Deployment, make_pipeline: Callable[..., Path]) -> Callable[..., None]:
    """Return a function that writes the copied file, with the names of the first pipeline except for OWN."""

    def write(*others: str, **changes: object) -> None:
        path = make_pipeline(COPY, prefix=NAME, source=first.pipeline.source.model_dump(mode="json"), **changes)
        data = yaml.safe_load(path.read_text())
        data["connector"]["name"] = NAME
        for key in {*OWN} - {*others}:
            section, _, entry = key.rpartition("/")
            (data[section] if section else data)[entry] = OWN[key]
        path.write_text(yaml.safe_dump(data))

    return write


def state(deployment: Deployment, source_dsn: str) -> object:
    """Return what the commands could change."""
    with psycopg.connect(source_dsn) as connection:
        table = deployment.pipeline.source.table
        database = connection.execute(f"select count(*), max(seq) from {table}").fetchall()
        for query in (
            "select slot_name, database from pg_replication_slots where slot_name = %s",
            "select oid, puballtables from pg_publication where pubname = %s",
            "select tablename from pg_publication_tables where pubname = %s order by 1",
        ):
            name = f"{NAME}_s" if "slot" in query else f"{NAME}_p"
            database += connection.execute(query, (name,)).fetchall()
    registry, connect = deployment.registry, deployment.connect
    subjects = [deployment.pipeline.subject_of(name) for name in deployment.pipeline.with_schemas]
    schemas = {name: (registry.latest(name), registry.compatibility(name)) for name in subjects}
    names = sorted(topic for topic in deployment.kafka.topics() if topic.startswith(f"{NAME}."))
    topics = {name: entry.config for name, entry in deployment.kafka.describe(names).items()}
    bounds = {name: deployment.kafka.bounds(name) for name in names}
    return database, schemas, topics, bounds, connect.config(NAME), connect.status(NAME)


@pytest.mark.parametrize("shared", [*OWN, "all"])
@pytest.mark.parametrize("unreachable", [(), UNREACHABLE_CONNECT])
def test_a_copied_file_changes_nothing_of_the_first_pipeline(
    outbox_here: Outbox,
    first: Deployment,
    copy: Callable[..., None],
    source_dsn: str,
    shared: str,
    unreachable: tuple[str, ...],
) -> None:
    copy(*(OWN if shared == "all" else [shared]), aggregates=_changed_aggregates(first))
    before = state(first, source_dsn)
    results = [_run(outbox_here, command, unreachable) for command in (APPLIES if unreachable else COMMANDS)]
    assert state(first, source_dsn) == before, "\n".join(result.output for result in results)
    _remove_copy(first, source_dsn)


def test_subjects_are_not_changed_while_neither_kafka_nor_connect_responds(
    outbox_here: Outbox, first: Deployment, copy: Callable[..., None], source_dsn: str
) -> None:
    copy("prefix", aggregates=_changed_aggregates(first))
    before = state(first, source_dsn)
    done = _run(outbox_here, ("apply", "--yes", "--only", "registry"), (*UNREACHABLE_CONNECT, *UNREACHABLE_KAFKA))
    assert (done.code, state(first, source_dsn)) == (1, before), done.output
    assert "the lock file does not record it" in done.stderr


def test_a_publication_of_another_table_is_not_replaced(
    outbox_here: Outbox, first: Deployment, copy: Callable[..., None], source_dsn: str
) -> None:
    copy("source/publication")
    before = state(first, source_dsn)
    table = ("--set", f"source.table=public.{COPY}_event")
    done = _run(outbox_here, ("apply", "--yes", "--only", "postgres", *table), UNREACHABLE_CONNECT)
    assert (done.code, state(first, source_dsn)) == (1, before), done.output
    assert f"contains public.{NAME}_event" in done.stderr


def test_a_slot_that_another_client_reads_is_not_used(
    outbox_here: Outbox, first: Deployment, copy: Callable[..., None], source_dsn: str
) -> None:
    """The client can be a connector of another Connect cluster."""
    copy("source/slot", "source/publication")
    before = state(first, source_dsn)
    done = _run(outbox_here, ("apply", "--yes", "--only", "postgres"), UNREACHABLE_CONNECT)
    assert (done.code, state(first, source_dsn)) == (1, before), done.output
    assert f"a client reads slot '{NAME}_s'" in done.stderr


def test_no_command_uses_another_connect_cluster(
    outbox_here: Outbox, outbox: Outbox, first: Deployment, other_cluster: str, source_dsn: str
) -> None:
    """A second connector would take over the slot, and `destroy` would delete the topics of a running connector."""
    address = ("--set", f"environment.connect.url={other_cluster}", "--set", "environment.connect.workers=[]")
    before = state(first, source_dsn)
    for command in (
        ("plan",),
        ("apply", "--yes"),
        ("apply", "--yes", "--recover"),
        *((name,) for name in ("restart", "pause", "resume", "stop")),
        ("recover", "--yes"),
        ("offsets", "reset", "--confirm", f"{NAME}@local"),
        ("destroy", "--delete-topics", "--delete-schemas", "--drop-slot", "--confirm", f"{NAME}@local"),
        ("relay", "--once"),
    ):
        run = outbox if command[0] == "relay" else outbox_here  # it installs handlers for signals
        done = run(*command, *address, pipeline=NAME)
        assert done.code == 1, f"{command}: {done.output}"
        assert state(first, source_dsn) == before, f"{command}: {done.output}"
    assert requests.get(f"{other_cluster}/connectors", timeout=10).json() == []
    assert outbox_here("verify", "--no-canary", *address, pipeline=NAME).code == 1


def test_a_lock_file_of_one_system_gives_no_access_to_others(
    first: Deployment, copy: Callable[..., None], outbox: Outbox, outbox_here: Outbox, source_dsn: str
) -> None:
    """`apply --only postgres` records the database, but no topics and no connector."""
    copy()
    assert _run(outbox_here, ("apply", "--yes", "--only", "postgres"), ()).code == 0
    before = state(first, source_dsn)
    source = first.pipeline.source
    names = {"source.table": source.table, "source.slot": source.slot, "source.publication": source.publication}
    of_first = {"prefix": NAME, "connector.name": NAME, **names}
    for command in (
        ("dead-letter", "acknowledge", "--all", "--yes"),
        ("dead-letter", "drop", "--all", "--purge", "--yes"),
        ("senders", "recover", "--all", "--older-than", "0", "--yes"),
        ("relay", "--once"),
        ("stop",),
        ("recover", "--yes"),
        ("backfill", "book", "--restart"),
        ("apply", "--yes", "--only", "kafka"),
        ("destroy", "--delete-topics", "--delete-schemas", "--drop-slot", "--confirm", f"{COPY}@local"),
    ):
        for keys in (["prefix"], [*names], [*of_first]):
            settings = [option for key in keys for option in ("--set", f"{key}={of_first[key]}")]
            run = outbox if command[0] == "relay" else outbox_here  # it installs handlers for signals
            done = _run(run, command, tuple(settings))
            assert done.code == 1, f"{command} {keys}: {done.output}"
    assert state(first, source_dsn) == before
    _remove_copy(first, source_dsn)


def test_a_publication_that_no_connector_shows_is_not_adopted_without_consent(
    first: Deployment, copy: Callable[..., None], outbox_here: Outbox, source_dsn: str
) -> None:
    """Otherwise, `destroy` would drop it."""
    copy("source/publication")
    before = state(first, source_dsn)
    done = _run(outbox_here, ("apply", "--yes", "--only", "postgres"), UNREACHABLE_CONNECT)
    assert (done.code, state(first, source_dsn)) == (1, before), done.output
    assert f'--allow "publication {NAME}_p"' in done.stderr


def test_a_slot_that_was_never_read_is_not_adopted(
    first: Deployment, copy: Callable[..., None], outbox_here: Outbox, source_dsn: str
) -> None:
    del first
    copy()
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot('never_read', 'pgoutput')")
        options = ("--set", "source.slot=never_read", *UNREACHABLE_CONNECT)
        done = _run(outbox_here, ("apply", "--yes", "--only", "postgres"), options)
        connection.execute("select pg_drop_replication_slot('never_read')")
    assert (done.code, "slot 'never_read' exists" in done.stderr) == (1, True), done.output


def _changed_aggregates(deployment: Deployment) -> dict[str, object]:
    """Return the aggregates with another compatibility level and more partitions."""
    entries = deployment.pipeline.aggregates.items()
    return {
        name: {"schema": str(entry.schema_file), "partitions": entry.partitions + 1, "compatibility": "NONE"}
        for name, entry in entries
    }


def _run(outbox: Outbox, command: tuple[str, ...], options: tuple[str, ...]) -> CommandResult:
    return outbox(*command, *options, pipeline=COPY)


def _remove_copy(first: Deployment, source_dsn: str) -> None:
    """Delete what a permitted command created under the copy's own names."""
    (first.lock_file.parent / f"{COPY}.local.lock.json").unlink(missing_ok=True)
    if first.connect.config(COPY) is not None:
        first.connect.delete(COPY)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(f"drop publication if exists {COPY}_p")
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", (f"{COPY}_s",)
        )
