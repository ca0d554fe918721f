"""Name and download the container images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient

from outbox_kit.stack.errors import StackError


@dataclass(frozen=True)
class Images:
    """Names of images. `make images` builds the defaults. docs/containers.md lists requirements for other images."""

    postgres: str = "outbox-kit/postgres"
    kafka: str = "outbox-kit/kafka"
    registry: str = "outbox-kit/registry"
    connect: str = "outbox-kit/connect"
    connect_plugins: Mapping[Path, str] = field(default_factory=dict)
    """Plugin folders of this machine, and the paths at which they are mounted in the workers."""


LOCAL_PREFIX = "outbox-kit/"
"""Prefix of images that are only built locally. An image with this prefix in a registry is not from outbox-kit."""
BUILD_HINT = "run `make images` in a checkout of outbox-kit, or name other images with Images(...)"
RYUK_HINT = "load the image, or set TESTCONTAINERS_RYUK_DISABLED=true and remove the containers of killed runs yourself"
RYUK_DIGESTS = {
    "testcontainers/ryuk:0.8.1": "sha256:bf3f74a47dee0acda89aba4b2fc9c7fdcf994a084db02a2d06566f07baae022e",
}
"""Digest of testcontainers' default image. It covers all platforms. An image that the user configured is kept."""


def provide_ryuk() -> None:
    """Make testcontainers' Ryuk image available by its digest, unless Ryuk is disabled. Raises StackError."""
    if testcontainers_config.ryuk_disabled:
        return
    image = testcontainers_config.ryuk_image
    if image in RYUK_DIGESTS:
        testcontainers_config.ryuk_image = f"{image}@{RYUK_DIGESTS[image]}"
    provide_image(testcontainers_config.ryuk_image, RYUK_HINT)


def provide_image(name: str, hint: str = BUILD_HINT) -> None:
    """Pull an image that is not available locally. Raises StackError with `hint` if the pull fails."""
    try:
        client = DockerClient().client  # applies Docker contexts and ~/.testcontainers.properties
    except DockerException as error:
        message = f"no container engine responds: {_first_line(error)}"
        raise StackError(message, "start Docker, or set DOCKER_HOST") from None
    try:
        client.images.get(name)
    except ImageNotFound:
        if name.startswith(LOCAL_PREFIX):
            raise StackError(f"image {name} does not exist locally", hint) from None
        _pull(client, name, hint)
    except DockerException as error:
        raise StackError(f"the container engine cannot read image {name}: {_first_line(error)}") from None
    finally:
        client.close()


def _pull(client: docker.DockerClient, name: str, hint: str) -> None:
    try:
        client.images.pull(name)
    except DockerException as error:
        raise StackError(f"cannot pull image {name}: {_first_line(error)}", hint) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
