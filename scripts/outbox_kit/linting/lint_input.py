"""What the rules look at: one pipeline in one environment, as the files say it. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from outbox_kit.connector_config import Transform, transforms
from outbox_kit.kafka.state import Topic, desired_topics
from outbox_kit.pipeline import Environment, Pipeline

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Target:
    """One pipeline in one environment.

    `config` is the rendered connector config, empty where a schema or the template is broken. `problem` is what
    kept the files from being rendered, and its next step. `literals` are keys of the environment file that hold a
    secret as it is; their values are not kept.
    """

    pipeline: Pipeline
    environment: Environment
    config: Mapping[str, str]
    label: str = ""
    literals: tuple[str, ...] = ()
    problem: tuple[str, str] | None = field(default=None)

    @cached_property
    def topics(self) -> dict[str, Topic]:
        """Topics that `apply` makes, by name."""
        return {topic.name: topic for topic in desired_topics(self.pipeline, self.environment)}

    @cached_property
    def transforms(self) -> list[Transform]:
        """Transforms of the config, in their order."""
        return transforms(self.config)

    @property
    def embedded(self) -> bool:
        """Whether Kafka runs on this machine: one broker, for trying things out."""
        servers = self.environment.kafka.bootstrap_servers.split(",")
        return all(server.strip().rsplit(":", 1)[0] in LOOPBACK for server in servers)

    def uses(self, kind: str) -> bool:
        """Whether a transform of this class is in the chain."""
        return any(transform.kind == kind for transform in self.transforms)
