"""Define a base class for containers that have a fixed port on 127.0.0.1, a network alias and a readiness check."""

from __future__ import annotations

from typing import Any, Self, cast

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.ports import HOST, free_port
from outbox_kit.testing.images import provide_image, provide_ryuk

LOG_LINES = 15
STOP_SECONDS = 60


class StackContainer(DockerContainer):
    """Container of one service. Its port on this machine does not change when the container is restarted."""

    container_port: int
    seconds: float = 120.0
    """Time limit in seconds for the container to become ready."""

    def __init__(self, image: str, *, name: str, network: Network | None, port: int | None = None) -> None:
        super().__init__(image)
        self.alias = name
        """Host name of the container in its network."""
        self.port = port or free_port(())
        """Port on 127.0.0.1."""
        # with_bind_ports() is not used, because it would open the port on every address of this machine.
        cast("dict[str, Any]", self.ports)[str(self.container_port)] = (HOST, self.port)
        if network is not None:
            self.with_network(network).with_network_aliases(name)

    def check(self) -> Observation[bool]:
        """Check once whether the service is ready. Does not raise while the service is starting."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start the container, without waiting for readiness. Raises StackError."""
        provide_ryuk()
        provide_image(self.image)
        try:
            super().start()
        except DockerException as error:
            raise StackError(f"container {self.alias} ({self.image}) did not start: {error}") from None
        return self

    def wait_ready(self) -> Self:
        """Wait until the service is ready. Raises WaitTimeoutError, and StackError if the service has exited."""
        wait_for(f"{self.alias} ({self.image}) to be ready", self._check_alive, seconds=self.seconds)
        return self

    def __enter__(self) -> Self:
        """Start the container, and wait until the service is ready."""
        try:
            return self.start().wait_ready()
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """Kill the container. Its data is retained."""
        self._docker_container().kill()

    def pause(self) -> None:
        """Suspend the processes of the container. Connections stay open but receive no responses."""
        self._docker_container().pause()

    def unpause(self) -> None:
        self._docker_container().unpause()

    def shut_down(self) -> None:
        """Send the stop signal, and wait until the container has stopped. Its data is retained."""
        self._docker_container().stop(timeout=STOP_SECONDS)

    def start_again(self) -> Self:
        """Start a container that was killed or shut down, and wait until the service is ready."""
        self._docker_container().start()
        return self.wait_ready()

    def log(self, lines: int = LOG_LINES) -> str:
        return str(self._docker_container().logs(tail=lines).decode(errors="replace"))

    def _docker_container(self) -> Any:  # noqa: ANN401 - docker is untyped
        return self.get_wrapped_container()

    def _check_alive(self) -> Observation[bool]:
        container = self._docker_container()
        container.reload()
        if container.status == "exited":
            code = container.attrs["State"]["ExitCode"]
            raise StackError(f"{self.alias} ({self.image}) exited with code {code}; end of its log:\n{self.log()}")
        return self.check()
