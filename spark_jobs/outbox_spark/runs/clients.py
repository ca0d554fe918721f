"""Keep connections between the runs of a process that materializes tables repeatedly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pyspark.sql import SparkSession

from outbox_events.http_session import HttpEndpoint
from outbox_events.schemas.registry_reader import RegistryReader
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.kafka.offset_ranges import TopicAdmin
from outbox_spark.kafka.topic_access import Topic, topic_of
from outbox_spark.sinks.postgres.connection import KeptConnections


class Clients:
    """Clients of Kafka, registries and PostgreSQL that runs use one after another. Jobs with equal settings share them.

    Use it as a context manager. After an error, call `close`, so that the next run connects again.
    """

    def __init__(self) -> None:
        self.postgres = KeptConnections()
        self._admins: dict[frozenset[tuple[str, str]], TopicAdmin] = {}
        self._registries: dict[HttpEndpoint, RegistryReader] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def admin(self, settings: Mapping[str, str]) -> TopicAdmin:
        """Return the admin client of a cluster. Raises ConfigurationError for settings that the client rejects."""
        key = frozenset(settings.items())
        if key not in self._admins:
            self._admins[key] = TopicAdmin(settings)
        return self._admins[key]

    def topic(self, spark: SparkSession, job: MaterializeJob) -> Topic:
        """Return access to the job's topic. Raises ConfigurationError for settings that a client rejects."""
        if job.registry not in self._registries:
            self._registries[job.registry] = RegistryReader(job.registry)
        return topic_of(spark, job, self.admin(job.kafka), self._registries[job.registry])

    def close(self) -> None:
        """Close all connections. The next run opens new ones."""
        self.postgres.close()
        self._admins.clear()
        while self._registries:
            self._registries.popitem()[1].close()
