"""Bench: a deployed pipeline that breakages break and repair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import uuid4

import psycopg
import requests
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka.dead_letters import group_of
from outbox_kit.pipeline import Lock
from outbox_kit.rules import Check, Status
from outbox_kit.verification import verify
from outbox_kit.waiting import Observation, wait_for

SECONDS = 60


@dataclass
class Bench:
    """One deployment, and what a breakage holds open until it is repaired."""

    deployment: Deployment
    dsn: str
    held: ExitStack = field(default_factory=ExitStack)

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

    def named(self, deployment: Deployment, canary_seconds: float | None, progress: Any) -> dict[str, Check]:  # noqa: ANN401
        """Return the checks that do not pass."""
        checks = verify(deployment, progress, canary_seconds=canary_seconds)
        return {check.id: check for check in checks if check.status in (Status.FAIL, Status.WARN)}

    # --- the database

    def sql(self, *statements: str) -> list[Any]:
        """Run statements as the administrator; the rows of the last one."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements[:-1]:
                connection.execute(statement)
            cursor = connection.execute(statements[-1])
            return cursor.fetchall() if cursor.description else []

    def server_setting(self, name: str, value: str | None) -> None:
        """Set or reset a setting of the server, without a restart."""
        self.sql(f"alter system set {name} = {value}" if value else f"alter system reset {name}")
        self.sql("select pg_reload_conf()")

    def row(self, aggregate: str, key: str | None = None, region: str = "here") -> None:
        """An event without a payload: a tombstone."""
        key = key or str(uuid4())
        self.sql(
            f"insert into {self.table} (aggregate_type, aggregate_id, event_type, region) "
            f"values ('{aggregate}', '{key}', 'sent', '{region}')"
        )

    # --- files

    @contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        """Change the lock file as JSON."""
        data = json.loads(self.deployment.lock_file.read_text())
        yield data
        self.deployment.write_lock(Lock.model_validate(data))

    def remember_lock(self) -> None:
        """Restore the lock file on repair."""
        before = self.deployment.lock()
        assert before is not None
        self.held.callback(self.deployment.write_lock, before)

    # --- the connector

    def live(self, **changes: str) -> None:
        """Change the live config outside outbox-kit, and wait until the task runs with it."""
        config = self.deployment.connect.config(self.name)
        assert config is not None
        self.update({**config, **changes})

    def restore_config(self) -> None:
        """The rendered config again."""
        self.update(self.deployment.render(self.deployment.lock()))

    def update(self, config: dict[str, str]) -> None:
        """Give the connector a config; the old task is served as RUNNING for a moment more."""
        before = self.reader()
        self.deployment.connect.update(self.name, config)
        self.wait_running(before)

    def restart(self) -> None:
        before = self.reader()
        self.deployment.connect.restart(self.name)
        self.wait_running(before)

    def stop(self) -> None:
        """Stop the connector and wait until its slot is free."""
        connect_lifecycle.stop(self.deployment.connect, self.name)
        wait_for(
            "the slot to be given up", lambda: Observation(None if self.reader() else True, "read"), seconds=SECONDS
        )

    def resume(self) -> None:
        self.deployment.connect.resume(self.name)
        self.wait_running()

    def wait_running(self, before: int | None = None) -> None:
        """Wait until RUNNING, reading the slot through another server process than `before`, and committing."""
        status = self.deployment.connect.status

        def poll() -> Observation[bool]:
            actual = status(self.name)
            if actual and connect_lifecycle.has_failed(actual):
                self.deployment.connect.restart(self.name)
            valid = connect_lifecycle.is_running(actual) and self.reader() not in (None, before)
            return Observation(True if valid else None, f"{actual}, reader {self.reader()}")

        wait_for("the connector to read its slot", poll, seconds=SECONDS)
        self.wait_moving()

    def wait_moving(self) -> None:
        """After a seed nothing advances until the first transaction; this one creates no record."""
        self.sql("select pg_logical_emit_message(true, 'outbox-heartbeat', '')")
        before = self.confirmed()
        wait_for(
            "the slot to move",
            lambda: Observation(True if self.confirmed() > before else None, str(before)),
            seconds=SECONDS,
            interval=0.1,
        )

    def reader(self) -> int | None:
        rows = self.sql(f"select active_pid from pg_replication_slots where slot_name = '{self.slot}'")
        return rows[0][0] if rows else None

    def confirmed(self) -> int:
        return int(
            self.sql(
                "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots "
                f"where slot_name = '{self.slot}'"
            )[0][0]
        )

    def seek(self, lsn: int | None = None) -> None:
        """Set another offset of the stopped connector; by default that of the slot."""
        lsn = self.confirmed() if lsn is None else lsn
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
        self._wait_topic(topic, there=False)

    def create_topic(self, topic: str) -> None:
        """Return the object as apply creates it."""
        topics = kafka_state.desired_topics(self.deployment.pipeline, self.deployment.environment)
        expected = next(item for item in topics if item.name == topic)
        new = NewTopic(topic, num_partitions=expected.partitions, replication_factor=1, config=expected.config)
        self.admin.create_topics([new])[topic].result(SECONDS)
        self._wait_topic(topic, there=True)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)

    def _wait_topic(self, topic: str, *, there: bool) -> None:
        def poll() -> Observation[bool]:
            return Observation(
                True if (topic in self.admin.list_topics(timeout=SECONDS).topics) is there else None, topic
            )

        wait_for(f"topic {topic}", poll, seconds=SECONDS, interval=0.1)

    def topic_setting(self, topic: str, key: str, value: str) -> None:
        self.deployment.kafka.set_config(topic, {key: value})

    def restore_settings(self, topic: str) -> None:
        topics = kafka_state.desired_topics(self.deployment.pipeline, self.deployment.environment)
        expected = next(item for item in topics if item.name == topic)
        self.deployment.kafka.set_config(topic, expected.config)

    def acknowledge(self) -> None:
        """Commit the end of the dead letter topic, as an operator's acknowledgement does."""
        topic = self.deployment.pipeline.dead_letter_topic
        group = group_of(self.deployment.pipeline)
        servers = self.deployment.environment.kafka.bootstrap_servers
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)
            consumer.commit(offsets=[TopicPartition(topic, 0, high)], asynchronous=False)
        finally:
            consumer.close()
