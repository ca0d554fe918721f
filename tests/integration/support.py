"""Helpers for the integration tests, which run commands and read topics."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import psycopg
import requests
from confluent_kafka import IsolationLevel, Message
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.remedies import commands_of
from typer.testing import CliRunner

from outbox_events.errors import OutboxError
from outbox_events.kafka.topic_reader import read_bounds, read_records
from outbox_events.waiting import Observation, wait_for
from outbox_kit.cli.app import app
from outbox_kit.cli.console import commands_completed, completed
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka
from outbox_kit.results.checks import Check

ARRIVE_SECONDS = 60
COMMAND_SECONDS = 240


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


def run(command: list[str], folder: Path, **environ: str) -> CommandResult:
    """Run a command and wait until it ends."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


Outbox = Callable[..., CommandResult]
Run = Callable[..., CommandResult]
Deploy = Callable[..., Deployment]


def in_process(deployment: Deployment | None = None) -> Run:
    """Return a function that runs commands in this process, which is faster than starting Python.

    The commands use the deployment, or the pipeline that the environment variables select.
    """
    options: list[str] = []
    if deployment is not None:
        pipeline = deployment.templates.parent / f"{deployment.pipeline.name}.yaml"
        options = ["-p", str(pipeline), "-e", deployment.environment.name]

    def command(*arguments: str, code: int = 0) -> CommandResult:
        done = invoke([*options, *arguments])
        assert done.code == code, done.output
        return done

    return command


def invoke(arguments: list[str]) -> CommandResult:
    """Run one command in this process."""
    result = CliRunner().invoke(app, arguments)
    message = result.stderr
    if isinstance(result.exception, OutboxError):
        message += f"error: {result.exception.message}\nhint: {result.exception.hint}"
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout, message)


def run_remedy(check: Check, options: str, run_other: Callable[[str], object]) -> None:
    """Run the commands of a remedy as printed, with --yes instead of a terminal. `run_other` runs other commands."""
    with commands_completed(options):
        commands = commands_of(completed(check.remedy))
    assert commands, check.remedy
    for command in commands:
        if command.startswith("curl -X DELETE "):
            requests.delete(command.split()[-1], timeout=COMMAND_SECONDS).raise_for_status()
            continue
        if not command.startswith("outbox "):
            run_other(command)
            continue
        arguments = shlex.split(command)[1:]
        result = invoke(
            [*arguments, *(["--yes"] if {"apply", "stuck", "acknowledge", "recover"} & {*arguments} else [])]
        )
        assert result.code == 0, f"{command}: {result.output}"


def read_all(kafka: Kafka, topic: str, partitions: int) -> list[Message]:
    """Return every committed record of a small topic."""
    messages: list[Message] = []
    settings = client_settings(kafka)
    bounds = read_bounds(settings, [topic], IsolationLevel.READ_UNCOMMITTED)[topic]  # with pending commits
    read_records(settings, {topic: {number: bounds[number] for number in range(partitions)}}, messages.append)
    return messages


def records(deployment: Deployment, topic: str, partitions: int) -> list[Message]:
    """Return every committed record of a topic."""
    return read_all(deployment.environment.kafka, topic, partitions)


def live_keys(deployment: Deployment, topic: str, partitions: int) -> set[str]:
    """Return the keys whose record with the highest source_sequence is not a tombstone."""
    newest: dict[str, Message] = {}
    for message in records(deployment, topic, partitions):
        key = (message.key() or b"").decode()  # type: ignore[union-attr]
        if key not in newest or _sequence(newest[key]) <= _sequence(message):
            newest[key] = message
    return {key for key, message in newest.items() if message.value() is not None}


def _sequence(message: Message) -> str:
    return headers(message).get("source_sequence", "")


def headers(message: Message) -> dict[str, str]:
    """Return the headers of a record as text."""
    actual = message.headers() or []
    assert isinstance(actual, list)
    return {str(key): value.decode() for key, value in actual if isinstance(value, bytes)}


def wait_record(deployment: Deployment, topic: str, partitions: int, event_id: str) -> Message:
    """Wait for the record of an event."""

    def poll() -> Observation[Message]:
        actual = records(deployment, topic, partitions)
        matching = [message for message in actual if headers(message).get("event_id") == event_id]
        return Observation(matching[0] if matching else None, f"{len(actual)} other records")

    return wait_for(f"event {event_id} on {topic}", poll, seconds=ARRIVE_SECONDS)


def wait_confirmed(dsn: str, slot: str) -> None:
    """Wait until the slot has confirmed all WAL that the server has written before this call."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        written = connection.execute("select pg_current_wal_lsn()").fetchone()
        assert written is not None

        def poll() -> Observation[bool]:
            row = connection.execute(
                "select confirmed_flush_lsn >= %s::pg_lsn, confirmed_flush_lsn::text "
                "from pg_replication_slots where slot_name = %s",
                (written[0], slot),
            ).fetchone()
            assert row is not None
            return Observation(row[0] or None, f"confirmed_flush_lsn {row[1]}")

        wait_for(f"slot {slot} to confirm {written[0]}", poll, seconds=ARRIVE_SECONDS)


def decode(deployment: Deployment, aggregate: str, message: Message) -> dict[str, Any]:
    """Decode the value with the schema of its id in the lock file."""
    value = message.value()
    assert isinstance(value, bytes)
    assert value[0] == 0
    lock = deployment.lock()
    assert lock is not None
    schemas = {entry.id: json.loads(entry.text) for entry in lock.schemas[aggregate]}
    decoded = fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[int.from_bytes(value[1:5], "big")], None)
    assert isinstance(decoded, dict)
    return decoded


@contextmanager
def temporary_database(source_dsn: str, prefix: str) -> Iterator[str]:
    """Yield the DSN of an empty database on the stack's server, which is dropped at the end."""
    name = f"{prefix}_{uuid4().hex[:12]}"
    with psycopg.connect(source_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template template0 encoding 'UTF8'").format(sql.Identifier(name)))
        try:
            yield make_conninfo(source_dsn, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
