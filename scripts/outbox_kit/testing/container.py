"""What the containers of a stack have in common: one fixed port on 127.0.0.1, a name in the network, a bounded wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from outbox_kit.errors import StackError
from outbox_kit.stack.ports import HOST, free_port
from outbox_kit.testing.images import provide, provide_ryuk
from outbox_kit.waiting import Seen, wait_for

LOG_LINES = 15
STOP_SECONDS = 60


class StackContainer(DockerContainer):
    """One part. The port on this machine stays the same when the container is started again."""

    inner_port: int
    seconds: float = 120.0
    """How long it may take from its start until it answers."""

    def __init__(self, image: str, *, name: str, network: Network | None, port: int | None = None) -> None:
        super().__init__(image)
        self.alias = name
        """Its host name in the network."""
        self.port = port or free_port(())
        """Its port on 127.0.0.1."""
        # Not with_bind_ports: it knows no address, and would listen on every one of this machine.
        cast("dict[str, Any]", self.ports)[str(self.inner_port)] = (HOST, self.port)
        if network is not None:
            self.with_network(network).with_network_aliases(name)

    def look(self) -> Seen[bool]:
        """Ask once whether the part answers; never raises for one that does not yet."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start the container without waiting for the part. Raises StackError."""
        provide_ryuk()
        provide(self.image)
        try:
            super().start()
        except DockerException as error:
            raise StackError(f"container {self.alias} ({self.image}) did not start: {error}") from None
        return self

    def wait_ready(self) -> Self:
        """Wait until the part answers. Raises StackError when it has ended, WaitTimeoutError."""
        wait_for(f"{self.alias} ({self.image})", self._look_alive, seconds=self.seconds)
        return self

    def __enter__(self) -> Self:
        """Start, and wait until the part answers."""
        try:
            return self.start().wait_ready()
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """End the container at once, as a power cut does. Its data stays."""
        self._engine().kill()

    def pause(self) -> None:
        """Freeze its processes: connections stay open and nothing answers."""
        self._engine().pause()

    def unpause(self) -> None:
        """Let its processes go on."""
        self._engine().unpause()

    def shut_down(self) -> None:
        """Stop the part in order. Its data stays."""
        self._engine().stop(timeout=STOP_SECONDS)

    def start_again(self) -> Self:
        """Start a container that was killed or shut down, and wait until the part answers."""
        self._engine().start()
        return self.wait_ready()

    def log(self, lines: int = LOG_LINES) -> str:
        """The end of what the container wrote."""
        return str(self._engine().logs(tail=lines).decode(errors="replace"))

    def _engine(self) -> Any:  # noqa: ANN401 - of docker, untyped
        return self.get_wrapped_container()

    def _look_alive(self) -> Seen[bool]:
        container = self._engine()
        container.reload()
        if container.status == "exited":
            code = container.attrs["State"]["ExitCode"]
            raise StackError(f"{self.alias} ({self.image}) ended with code {code}; its last words:\n{self.log()}")
        return self.look()


def variables(prefix: str, settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Settings as the official images take them: a.b of prefix KAFKA_ is KAFKA_A_B."""
    return {
        prefix + key.upper().replace("_", "__").replace("-", "___").replace(".", "_"): _text(value)
        for key, value in settings.items()
    }


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
