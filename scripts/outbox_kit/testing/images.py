"""Which images the containers are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient

from outbox_kit.errors import StackError


@dataclass(frozen=True)
class Images:
    """Names of images; the defaults are what `make images` builds. docs/containers.md: what others must provide."""

    postgres: str = "outbox-kit/postgres"
    kafka: str = "outbox-kit/kafka"
    registry: str = "outbox-kit/registry"
    connect: str = "outbox-kit/connect"
    connect_plugins: Mapping[Path, str] = field(default_factory=dict)
    """Folders to mount into the workers, each with its place there: an official image lacks the kit's transforms."""


OWN = "outbox-kit/"
"""The kit's own images are in no registry: what is there under their name is not ours."""
BUILD = "`make images` in a checkout of outbox-kit builds the default ones; others: Images(...)"
WITHOUT_RYUK = "TESTCONTAINERS_RYUK_DISABLED=true does without what removes containers after a killed test run"


def provide_ryuk() -> None:
    """Make sure that testcontainers' own image is here, unless it is told to do without. Raises StackError."""
    if not testcontainers_config.ryuk_disabled:
        provide(testcontainers_config.ryuk_image, WITHOUT_RYUK)


def provide(name: str, hint: str = BUILD) -> None:
    """Make sure that an image is here; one that is not is pulled. Raises StackError with the hint."""
    try:
        client = DockerClient().client  # testcontainers' own: it knows contexts and its settings file
    except DockerException as error:
        message = f"no container engine answers: {_first_line(error)}"
        raise StackError(message, "start Docker, or name its address in DOCKER_HOST") from None
    try:
        client.images.get(name)
    except ImageNotFound:
        if name.startswith(OWN):
            raise StackError(f"image {name} is not here", hint) from None
        _pull(client, name, hint)
    except DockerException as error:
        raise StackError(f"the container engine refuses image {name}: {_first_line(error)}") from None
    finally:
        client.close()


def _pull(client: docker.DockerClient, name: str, hint: str) -> None:
    try:
        client.images.pull(name)
    except DockerException as error:
        message = f"image {name} is not here and cannot be pulled: {_first_line(error)}"
        raise StackError(message, hint) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
