"""Input of the lint rules: one pipeline in one environment, with its rendered connector config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from outbox_kit.connector_config import ROUTER, Route, Transform, routes, transforms
from outbox_kit.kafka.state import Topic, desired_topics
from outbox_kit.pipeline import Environment, Pipeline

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class LintInput:
    """One pipeline in one environment.

    `config` is the rendered connector config; it is empty where rendering failed, and `error` then holds message and
    hint. `literals` are the keys of the environment file that hold a secret in plain text, never the values.
    """

    pipeline: Pipeline
    environment: Environment
    config: Mapping[str, str]
    label: str = ""
    literals: tuple[str, ...] = ()
    error: tuple[str, str] | None = None

    @cached_property
    def topics(self) -> dict[str, Topic]:
        """Topics that `apply` creates, by name."""
        return {topic.name: topic for topic in desired_topics(self.pipeline, self.environment)}

    @cached_property
    def transforms(self) -> list[Transform]:
        """Transforms of the config, in order."""
        return transforms(self.config)

    @cached_property
    def routers(self) -> list[Transform]:
        """Every OutboxRouter among the transforms."""
        return [transform for transform in self.transforms if transform.kind == ROUTER]

    @cached_property
    def routes(self) -> list[Route]:
        """Routes of the config, as far as they can be decided from it."""
        return routes(self.config, self.pipeline.routed)

    @property
    def is_local(self) -> bool:
        """Whether all Kafka bootstrap servers are on this machine."""
        servers = self.environment.kafka.bootstrap_servers.split(",")
        return all(server.strip().rsplit(":", 1)[0] in LOOPBACK for server in servers)

    def uses(self, kind: str) -> bool:
        """Return whether a transform of this class is in the chain."""
        return any(transform.kind == kind for transform in self.transforms)
