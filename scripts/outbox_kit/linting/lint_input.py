"""Input of the lint rules: one pipeline in one environment, with its rendered connector config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address

from outbox_kit.connect.connector_config import ROUTER, Route, Transform, routes, transforms
from outbox_kit.kafka.state import Topic, desired_topics
from outbox_kit.pipeline import Environment, Pipeline


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, `localhost`, or the folder of a Unix socket."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")


@dataclass(frozen=True)
class LintInput:
    """One pipeline in one environment.

    `config` is the rendered connector config, empty if it cannot be rendered. `error` is then (message, hint), or None
    for an invalid schema file. `label` is the path of the pipeline file, if any. `plain_text_secrets` are keys of the
    environment file whose value is a secret in plain text.
    """

    pipeline: Pipeline
    environment: Environment
    config: Mapping[str, str]
    label: str = ""
    plain_text_secrets: tuple[str, ...] = ()
    error: tuple[str, str] | None = None

    @cached_property
    def topics(self) -> dict[str, Topic]:
        """Topics of the desired state, by topic name."""
        return {topic.name: topic for topic in desired_topics(self.pipeline, self.environment)}

    @cached_property
    def transforms(self) -> list[Transform]:
        """Transforms of the config, in the order in which Connect runs them."""
        return transforms(self.config)

    @cached_property
    def routers(self) -> list[Transform]:
        """Every OutboxRouter among the transforms."""
        return [transform for transform in self.transforms if transform.class_name == ROUTER]

    @cached_property
    def routes(self) -> list[Route]:
        """Topic of each aggregate type, as the transforms define it."""
        return routes(self.config, self.pipeline.routed)

    @property
    def is_local(self) -> bool:
        """Whether the address of every Kafka bootstrap server is a loopback address."""
        servers = self.environment.kafka.bootstrap_servers.split(",")
        return all(is_loopback(server.strip().rsplit(":", 1)[0]) for server in servers)

    def has_transform(self, class_name: str) -> bool:
        """Return whether the config has a transform of this class."""
        return any(transform.class_name == class_name for transform in self.transforms)
