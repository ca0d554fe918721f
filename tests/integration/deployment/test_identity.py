"""Commands that change a system refuse to run against another cluster or database; commands that read warn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal
from tests.integration.support import CommandResult, Deploy, Outbox, wait_record
from tests.integration.transforms.test_records import book, send
from typer.core import TyperGroup

from outbox_kit.cli.app import TASKS, _load_command
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Lock

NAME = "identified"
CONFIRMED = ("--confirm", f"{NAME}@local")
CHANGING = {
    "apply": ("--yes",),
    "destroy": ("--delete-topics", "--drop-slot", *CONFIRMED),
    "adopt": ("another", "--yes"),
    "restart": (),
    "pause": (),
    "resume": (),
    "stop": (),
    "offsets reset": CONFIRMED,
    "backfill": ("book", "--restart"),
    "republish": ("book", "--key", "k", "--tombstones", "--yes"),
    "recover": ("--yes",),
    "stuck": ("--resend", "--yes"),
    "dead-letter replay": ("--all", "--yes"),
    "dead-letter drop": ("--all", "--purge", "--yes"),
    "dead-letter acknowledge": ("--all", "--yes"),
    "log-level": ("io.outboxkit", "DEBUG"),
    "relay": ("--once",),
    "prune": ("--older-than", "0s", "--all", *CONFIRMED),
    "senders recover": ("--all", "--yes"),
}
ONLY = [("--only", "kafka"), ("--only", "registry")]
# After a failover or restore, a connector can be stopped. `resume` does nothing, because the connector is RUNNING.
ANY_DATABASE = {"stop", "pause", "resume", "log-level"}
WARNING = {
    "status": (),
    "stuck": (),
    "offsets show": (),
    "dead-letter list": (),
    "log-level": (),
    "senders list": (),
}
# These commands read only files, compare the systems in their own checks, or use the embedded stack.
OTHER = {
    *("init", "render", "lint", "plan", "verify", "doctor", "demo"),
    *("offsets export", "dead-letter show"),
    *("stack up", "stack down", "stack status", "stack logs"),
}


@pytest.fixture(scope="module")
def deployment(deploy_once: Deploy) -> Deployment:
    """A deployment that the tests do not change."""
    return deploy_once(NAME)


@pytest.fixture
def lock(deployment: Deployment) -> Iterator[Lock]:
    """The lock file, which is restored after the test."""
    lock = deployment.lock()
    assert lock is not None
    yield lock
    deployment.write_lock(lock)


def command_names() -> Iterator[str]:
    """Yield the name of every command, including subcommands."""
    for name in (name for names in TASKS.values() for name in names):
        command = _load_command(name)
        yield from [f"{name} {sub}" for sub in command.commands] if isinstance(command, TyperGroup) else [name]


def test_every_command_is_listed() -> None:
    assert set(command_names()) == CHANGING.keys() | WARNING.keys() | OTHER


def state(deployment: Deployment, source_dsn: str) -> object:
    """Return what the commands could change."""
    with psycopg.connect(source_dsn) as connection:
        rows = connection.execute(f"select count(*), max(seq) from public.{NAME}_event").fetchall()
        rows += connection.execute("select slot_name, database from pg_replication_slots order by 1").fetchall()
        rows += connection.execute("select pubname from pg_publication order by 1").fetchall()
    connect, name = deployment.connect, deployment.pipeline.connector.name
    names = [topic for topic in deployment.kafka.topics() if topic.startswith(NAME) and "heartbeat" not in topic]
    topics = {topic: deployment.kafka.bounds(topic) for topic in names}
    status = connect.status(name)
    return rows, topics, connect.config(name), status and status.text, connect.loggers()


@contextmanager
def commented(source_dsn: str, publication: str, comment: str | None) -> Iterator[None]:
    """Replace the comment of the publication inside the block."""
    statement = SQL("comment on publication {} is {}")
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        query = "select obj_description(oid, 'pg_publication') from pg_publication where pubname = %s"
        [(own_mark,)] = connection.execute(query, [publication]).fetchall()
        connection.execute(statement.format(Identifier(publication), Literal(comment)))
        try:
            yield
        finally:
            connection.execute(statement.format(Identifier(publication), Literal(own_mark)))


def test_commands_change_nothing_if_the_publication_belongs_to_another_environment(
    outbox: Outbox, outbox_here: Outbox, deployment: Deployment, lock: Lock, source_dsn: str
) -> None:
    """The pipeline was destroyed and deployed as another environment, but an old checkout has the old lock file."""
    publication = deployment.pipeline.source.publication
    mark = f"outbox-kit: pipeline {NAME}, environment prod, prefix {NAME}, slot {deployment.pipeline.source.slot}"
    before = state(deployment, source_dsn)
    commands = [(name, options) for name, options in CHANGING.items() if name not in ANY_DATABASE]
    commands += [("apply", (option, name, "--yes")) for option, name in ONLY] + [("apply", ("--recover", "--yes"))]
    with commented(source_dsn, publication, mark):
        for command, options in commands:
            run = outbox if command == "relay" else outbox_here
            done = run(*command.split(), *options, pipeline=NAME)
            assert done.code == 1, f"{command} {options}: {done.output}"
            problem = "does not belong to" if command == "destroy" else "environment prod"
            assert problem in done.stderr, f"{command} {options}: {done.output}"
        assert lock.source is not None
        created_again = lock.source.model_copy(update={"publication_oid": 1})
        deployment.write_lock(lock.model_copy(update={"source": created_again}))
        done = outbox_here("recover", "--new-database", "--yes", pipeline=NAME)
        assert (done.code, f'--allow "publication {publication}"' in done.stderr) == (1, True), done.output
    assert state(deployment, source_dsn) == before


def test_a_recovery_changes_nothing_if_the_connector_was_applied_with_another_lock_file(
    outbox_here: Outbox, deployment: Deployment, lock: Lock, source_dsn: str
) -> None:
    """As above, if the publication has no mark. The other environment has increased the source epoch."""
    assert lock.source is not None
    created_again = lock.source.model_copy(update={"publication_oid": 1})
    deployment.write_lock(lock.model_copy(update={"source": created_again, "source_epoch": lock.source_epoch - 1}))
    before = state(deployment, source_dsn)
    done = outbox_here("recover", "--new-database", "--yes", pipeline=NAME)
    assert (done.code, "writes source epoch" in done.stderr) == (1, True), done.output
    with commented(source_dsn, deployment.pipeline.source.publication, None):
        done = outbox_here("apply", "--recover", "--yes", pipeline=NAME)
    assert (done.code, f'--allow "connector {deployment.pipeline.connector.name}"' in done.stderr) == (1, True)
    assert state(deployment, source_dsn) == before


def test_subjects_that_the_lock_file_lacks_are_not_taken_over(
    outbox_here: Outbox, deployment: Deployment, lock: Lock, source_dsn: str
) -> None:
    """The registry can be that of another environment, although other systems were already deployed."""
    deployment.write_lock(lock.model_copy(update={"schemas": {}, "registry_url": None}))
    before = state(deployment, source_dsn)
    done = outbox_here("apply", "--yes", pipeline=NAME)
    assert done.code == 1, done.output
    assert f'--allow "schema {NAME}.book-value"' in done.stderr
    assert state(deployment, source_dsn) == before


@pytest.mark.parametrize("place", ["cluster in the environment", "cluster in the lock file", "database"])
def test_changing_commands_change_nothing_elsewhere(
    outbox: Outbox, outbox_here: Outbox, deployment: Deployment, lock: Lock, source_dsn: str, place: str
) -> None:
    settings: tuple[str, ...] = ()
    if place == "cluster in the environment":
        settings = ("--set", "environment.kafka.cluster_id=another")
    elif place == "cluster in the lock file":
        deployment.write_lock(lock.model_copy(update={"cluster_id": "another"}))
    else:
        assert lock.source is not None
        other = lock.source.model_copy(update={"system_identifier": "1"})
        deployment.write_lock(lock.model_copy(update={"source": other}))
    before = state(deployment, source_dsn)
    commands = {name: options for name, options in CHANGING.items() if place != "database" or name not in ANY_DATABASE}
    for command, options in commands.items():
        # `relay` installs handlers for signals.
        run = outbox if command == "relay" else outbox_here
        done = run(*command.split(), *options, *settings, pipeline=NAME)
        assert done.code == 1, f"{command}: {done.output}"
        assert ("system identifier" if place == "database" else "another") in done.stderr, f"{command}: {done.output}"
    assert state(deployment, source_dsn) == before


@pytest.mark.parametrize(
    "setting",
    [
        "environment.source.database=elsewhere",
        "source.slot=another",
        "source.publication=another",
        "prefix=another",
    ],
)
def test_changing_commands_change_nothing_with_other_names(
    outbox: Outbox, outbox_here: Outbox, deployment: Deployment, lock: Lock, source_dsn: str, setting: str
) -> None:
    """Another database of the server can be a copy. Slots and publications can be those of another pipeline."""
    del lock
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        if not connection.execute("select from pg_database where datname = 'elsewhere'").fetchall():
            connection.execute("create database elsewhere")
    before = state(deployment, source_dsn)
    # `apply` and `adopt` create objects with other names, and refuse another database.
    excluded = ANY_DATABASE | ({"apply", "adopt"} if "=another" in setting else set())
    for command in CHANGING.keys() - excluded:
        run = outbox if command == "relay" else outbox_here
        done = run(*command.split(), *CHANGING[command], "--set", setting, pipeline=NAME)
        assert done.code == 1, f"{command}: {done.output}"
    assert state(deployment, source_dsn) == before


def test_verify_names_a_lost_lock_file_as_plan_does(
    outbox_here: Outbox, deployment: Deployment, lock: Lock, source_dsn: str
) -> None:
    key = str(uuid4())
    event_id = send(source_dsn, "book", key, book(key), table=f"public.{NAME}_event")
    wait_record(deployment, f"{NAME}.book", deployment.pipeline.aggregates["book"].partitions, event_id)
    deployment.lock_file.unlink()
    errors = {outbox_here(command, pipeline=NAME).stderr for command in ("plan", "verify")}
    assert len(errors) == 1
    assert f"source epoch {lock.source_epoch}" in errors.pop()


def test_reading_commands_warn(outbox_here: Outbox, deployment: Deployment) -> None:
    def run(command: str, options: tuple[str, ...]) -> CommandResult:
        setting = "environment.kafka.cluster_id=another"
        return outbox_here(*command.split(), *options, "--set", setting, pipeline=deployment.pipeline.name)

    for command, options in WARNING.items():
        assert "warning: " in run(command, options).stderr, command
