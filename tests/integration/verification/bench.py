"""The class Bench, which is a deployed pipeline that the breakages change and repair."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import requests
from confluent_kafka import Message
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.integration.support import decode, records, run, run_remedy

from outbox_events.waiting import Observation, wait_for
from outbox_kit.cli.options import CommonOptions
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.results.checks import Check, Status
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.services.java import find_java
from outbox_kit.stack.services.kafka import NODE_ID
from outbox_kit.verification import verify

SECONDS = 60
AUTHORS = "public.checked_author"
AUTHOR_STATES = f"""
    select id::text as aggregate_id, 'here' as region, jsonb_build_object(
      'id', id, 'name', name, 'country', null, 'born', null, 'pen_names', '[]'::jsonb,
      'updated_at', '2026-01-01T00:00:00+00:00') as payload
    from {AUTHORS}"""
BOOKS = "public.checked_book"
BOOK_STATES = f"select id::text as aggregate_id, null::jsonb as payload from {BOOKS} where id = any(:keys)"


@dataclass
class Bench:
    """One deployment, and the cleanup of the current breakage. `names` contains the authors' names by key."""

    deployment: Deployment
    dsn: str
    pipeline_file: Path
    names: dict[str, str] = field(default_factory=dict)
    cleanup: ExitStack = field(default_factory=ExitStack)

    @property
    def name(self) -> str:
        return self.deployment.pipeline.connector.name

    @property
    def table(self) -> str:
        return self.deployment.pipeline.source.table

    @property
    def slot(self) -> str:
        return self.deployment.pipeline.source.slot

    @property
    def publication(self) -> str:
        return self.deployment.pipeline.source.publication

    def topic(self, aggregate: str) -> str:
        return self.deployment.pipeline.topic_of(aggregate)

    def failing_checks(self, deployment: Deployment, canary_seconds: float | None, progress: Any) -> dict[str, Check]:  # noqa: ANN401
        """Return the checks that do not pass."""
        checks = verify(deployment, progress, canary_seconds=canary_seconds)
        return {check.id: check for check in checks if check.status in (Status.FAIL, Status.WARN)}

    # --- the database

    def sql(self, *statements: str) -> list[Any]:
        """Run statements as the administrator. Return the rows of the last statement."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements[:-1]:
                connection.execute(statement)
            cursor = connection.execute(statements[-1])
            return cursor.fetchall() if cursor.description else []

    def server_setting(self, name: str, value: str | None) -> None:
        """Set or reset a setting of the server without a restart."""
        self.sql(f"alter system set {name} = {value}" if value else f"alter system reset {name}")
        self.sql("select pg_reload_conf()")

    def row(self, aggregate: str, key: str | None = None, region: str = "here") -> None:
        """Insert an event without a payload, which is a tombstone."""
        key = key or str(uuid4())
        self.sql(
            f"insert into {self.table} (aggregate_type, aggregate_id, event_type, region) "
            f"values ('{aggregate}', '{key}', 'sent', '{region}')"
        )

    def write_author(self, name: str, key: str | None = None, table: str | None = None) -> str:
        """Add or change an author as a service does, with row and event in one transaction. Return the key.

        A service with a wrong search_path writes the event to another `table`.
        """
        key = key or str(uuid4())
        self.sql(
            f"insert into {AUTHORS} values ('{key}', '{name}') on conflict (id) do update set name = excluded.name; "
            f"insert into {table or self.table} (aggregate_type, aggregate_id, event_type, region, payload) "
            f"select 'author', aggregate_id, 'written', region, payload from ({AUTHOR_STATES}) a "
            f"where aggregate_id = '{key}'"
        )
        self.names[key] = name
        return key

    def wait_authors(self) -> None:
        """Wait until the last record of each written author has the author's name."""

        def poll() -> Observation[bool]:
            topic = records(self.deployment, self.topic("author"), 4)
            last = {(message.key() or b"").decode(): message for message in topic}
            actual = {key: self._name(last[key]) for key in self.names if key in last}
            return Observation(actual == self.names or None, f"{actual}, not {self.names}")

        wait_for("the names of the authors on the topic", poll, seconds=SECONDS)

    def _name(self, message: Message) -> str | None:
        """Return the name of an author; None if the record has an unknown schema id."""
        try:
            return str(decode(self.deployment, "author", message)["name"])
        except KeyError:
            return None

    # --- remedies

    def run_remedy(self, check: Check) -> None:
        """Run the commands of a remedy as printed: SQL as the administrator, and `outbox` in this process."""
        options = CommonOptions(self.pipeline_file, self.deployment.environment.name).arguments
        run_remedy(check, options, self._run_other)

    def _run_other(self, command: str) -> None:
        if command.startswith("kafka-configs "):
            self._kafka_configs(shlex.split(command)[1:])
        else:
            self.sql(command)

    def _kafka_configs(self, arguments: list[str]) -> None:
        """Run Kafka's command line tool, whose launcher is not part of the embedded stack."""
        java = find_java()
        libraries = Layout(self.pipeline_file.parent.parent).runtime / "kafka" / "libs"
        class_path = f"{libraries}/*"
        done = run([str(java), "-cp", class_path, "kafka.admin.ConfigCommand", *arguments], libraries)
        assert done.code == 0, done.output

    # --- files

    @contextmanager
    def edited_lock(self) -> Iterator[dict[str, Any]]:
        """Yield the lock file as JSON, and write it at the end of the block."""
        lock = self.deployment.lock()
        assert lock is not None
        data = lock.model_dump()
        yield data
        self.deployment.write_lock(Lock.model_validate(data))

    # --- the connector

    def change_config(self, **changes: str) -> None:
        """Change the live config outside outbox-kit, and wait until the task runs with it."""
        config = self.deployment.connect.config(self.name)
        assert config is not None
        self.update({**config, **changes})

    def restore_config(self) -> None:
        """Restore the rendered config."""
        self.update(self.deployment.render(self.deployment.lock()))

    def update(self, config: dict[str, str]) -> None:
        """Update the config and wait for the new task, because Connect briefly reports the old task as RUNNING."""
        old_pid = self.slot_pid()
        self.deployment.connect.update_config(self.name, config)
        self.wait_running(old_pid)

    def restart(self) -> None:
        old_pid = self.slot_pid()
        self.deployment.connect.restart(self.name)
        self.wait_running(old_pid)

    def stop(self) -> None:
        """Stop the connector and wait until its slot is free."""
        connect_lifecycle.stop(self.deployment.connect, self.name)
        wait_for(
            "the slot to be released", lambda: Observation(None if self.slot_pid() else True, "read"), seconds=SECONDS
        )

    def resume(self) -> None:
        self.deployment.connect.resume(self.name)
        self.wait_running()

    def wait_running(self, old_pid: int | None = None) -> None:
        """Wait until the connector is RUNNING, its slot has a walsender other than `old_pid`, and the slot advances."""
        status = self.deployment.connect.status

        def poll() -> Observation[bool]:
            actual = status(self.name)
            if actual and connect_lifecycle.has_failed(actual):
                self.deployment.connect.restart(self.name)
            valid = connect_lifecycle.is_running(actual) and self.slot_pid() not in (None, old_pid)
            return Observation(True if valid else None, f"{actual}, reader {self.slot_pid()}")

        wait_for("the connector to read its slot", poll, seconds=SECONDS)
        self.wait_slot_advances()

    def wait_failed(self) -> None:
        """Wait until the task is FAILED and no longer reads the slot."""

        def poll() -> Observation[bool]:
            status = self.deployment.connect.status(self.name)
            failed = status is not None and connect_lifecycle.has_failed(status) and self.slot_pid() is None
            return Observation(failed or None, str(status))

        wait_for("the task to fail", poll, seconds=SECONDS)

    def wait_slot_advances(self) -> None:
        """Emit a message, because a new slot advances only by a transaction, and wait until the slot advances."""
        self.sql("select pg_logical_emit_message(true, 'outbox-heartbeat', '')")
        start = self.confirmed_lsn()
        wait_for(
            "the slot to advance",
            lambda: Observation(True if self.confirmed_lsn() > start else None, str(start)),
            seconds=SECONDS,
            interval=0.1,
        )

    def slot_pid(self) -> int | None:
        rows = self.sql(f"select active_pid from pg_replication_slots where slot_name = '{self.slot}'")
        return rows[0][0] if rows else None

    def confirmed_lsn(self) -> int:
        return int(
            self.sql(
                "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots "
                f"where slot_name = '{self.slot}'"
            )[0][0]
        )

    def set_offset(self, lsn: int | None = None) -> None:
        """Set the offset of the stopped connector, by default to the LSN that the slot has confirmed."""
        lsn = self.confirmed_lsn() if lsn is None else lsn
        offset = seed(lsn)
        self.deployment.connect.patch_offsets(self.name, {"server": self.deployment.pipeline.prefix}, offset)

    def connector(self, method: str, name: str) -> None:
        requests.request(method, f"{self.deployment.connect.url}/connectors/{name}", timeout=30).raise_for_status()

    # --- Kafka

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.deployment.environment.kafka.bootstrap_servers})

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(SECONDS)
        self._wait_topic(topic, exists=False)

    def create_topic(self, topic: str, *, recorded: bool = True) -> None:
        """Create the topic with the settings that apply uses. If `recorded`, write its id to the lock file."""
        topics = kafka_state.desired_topics(self.deployment.pipeline, self.deployment.environment)
        expected = next(item for item in topics if item.name == topic)
        new = NewTopic(topic, num_partitions=expected.partitions, replication_factor=1, config=expected.config)
        self.admin.create_topics([new])[topic].result(SECONDS)
        self._wait_topic(topic, exists=True)
        if recorded:
            self.record_topic(topic)

    def record_topic(self, topic: str) -> None:
        """Write the id of the topic to the lock file."""
        with self.edited_lock() as data:
            data["topics"][topic]["id"] = self.deployment.kafka.describe([topic])[topic].id

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)

    def _wait_topic(self, topic: str, *, exists: bool) -> None:
        def poll() -> Observation[bool]:
            return Observation(
                True if (topic in self.admin.list_topics(timeout=SECONDS).topics) is exists else None, topic
            )

        wait_for(f"topic {topic}", poll, seconds=SECONDS, interval=0.1)

    def topic_setting(self, topic: str, key: str, value: str) -> None:
        self.deployment.kafka.set_config(topic, {key: value})

    def broker_setting(self, key: str, value: str) -> None:
        """Set a setting of the broker without a restart."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(NODE_ID), incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def restore_settings(self, topic: str) -> None:
        topics = kafka_state.desired_topics(self.deployment.pipeline, self.deployment.environment)
        expected = next(item for item in topics if item.name == topic)
        self.deployment.kafka.set_config(topic, expected.config)

    def acknowledge(self) -> None:
        """Acknowledge all dead letters."""
        self.deployment.dead_letters().acknowledge()
