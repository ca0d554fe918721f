"""The stack of compose/compose.yaml with its own project name, free ports and new passwords."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import psycopg
from dotenv import dotenv_values
from testcontainers.compose import DockerCompose
from tests.integration.support import CommandResult, run

from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment, open_deployment
from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST, free_port
from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_kit.stack.state import kafka_cluster_id

REPOSITORY = Path(__file__).resolve().parents[2]
HEALTHY_SECONDS = 120


def write_variables(file: Path, **changes: str) -> dict[str, str]:
    """Write compose/.env as `make up` does, except for the project name, the ports and `changes`. Return its path."""
    values = {key: value or "" for key, value in dotenv_values(REPOSITORY / "compose" / ".env.example").items()}
    ports: list[int] = []
    for name in [name for name in values if name.endswith("_PORT")]:
        ports.append(free_port(ports))
        values[name] = str(ports[-1])
    values |= {name: uuid4().hex for name, value in values.items() if name.endswith("_PASSWORD") and not value}
    values |= {"KAFKA_CLUSTER_ID": kafka_cluster_id()}
    values |= {name: f"{values[name]} {FAST_START_OPTIONS}" for name in ("KAFKA_HEAP", "CONNECT_HEAP")}
    values |= {"COMPOSE_PROJECT_NAME": f"outbox-test-{uuid4().hex[:8]}", **changes}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return values


@dataclass(frozen=True)
class ComposeStack:
    """A running stack of one project folder."""

    project: Path
    values: dict[str, str]
    compose: DockerCompose
    engine: docker.DockerClient

    def command(self, *arguments: str) -> CommandResult:
        """Run `docker compose` with these arguments.

        Shell variables override the file, and the COMPOSE_PROJECT_NAME of a developer's stack would cause the
        deletion of its volumes. Therefore, the values are passed as variables, and the project name also as an option.
        """
        project = ["-p", self.values["COMPOSE_PROJECT_NAME"]]
        return run(
            [*self.compose.compose_command_property, *project, *arguments], REPOSITORY / "compose", **self.values
        )

    def outbox(self, *arguments: str, **environ: str) -> CommandResult:
        """Run `outbox` with the environment file of this stack."""
        return self._python("outbox_kit.cli", "-e", self.environment, *arguments, **environ)

    def materialize(self, *arguments: str, **environ: str) -> CommandResult:
        """Run the materialization job on this machine."""
        return self._python(
            "outbox_spark.commands.materialize", "-e", self.environment, "--target", "warehouse", *arguments, **environ
        )

    @property
    def environment(self) -> str:
        """Name of the environment file for the profiles of this stack."""
        names = self.compose.compose_file_name
        return "compose-secure" if names is not None and "secure.yaml" in names else "compose"

    @contextmanager
    def deployment(self) -> Iterator[Deployment]:
        """Open the deployment of the worked example in this stack."""
        with open_deployment(self.project / "connectors" / "library.yaml", self.environment) as deployment:
            yield deployment

    @property
    def source_dsn(self) -> str:
        return self._dsn("outbox_admin", "ADMIN_PASSWORD", "library")

    @property
    def target_dsn(self) -> str:
        return self._dsn("outbox_materializer", "MATERIALIZER_PASSWORD", "warehouse")

    @property
    def registry(self) -> str:
        return f"http://{HOST}:{self.values['REGISTRY_PORT']}/apis/ccompat/v7"

    def connect(self, number: int) -> str:
        return f"http://{HOST}:{self.values[f'CONNECT_{number}_PORT']}"

    def container(self, service: str) -> Any:  # noqa: ANN401 - docker is untyped
        """Return the container of a service."""
        labels = [
            f"com.docker.compose.project={self.values['COMPOSE_PROJECT_NAME']}",
            f"com.docker.compose.service={service}",
        ]
        containers = self.engine.containers.list(all=True, filters={"label": labels})
        assert len(containers) == 1, [container.name for container in containers]
        return containers[0]

    def wait_healthy(self, service: str) -> None:
        """Wait until the engine reports a service as healthy."""

        def poll() -> Observation[bool]:
            state = self.container(service).attrs["State"]
            health = state.get("Health", {}).get("Status")
            return Observation(True if health == "healthy" else None, f"{state['Status']}, {health}")

        wait_for(f"{service} to be healthy", poll, seconds=HEALTHY_SECONDS)

    def wait_worker(self, number: int) -> None:
        """Wait until a worker responds on this machine."""
        wait_for(
            f"connect-{number}", lambda: health_checks.check_connect(self.connect(number), ()), seconds=HEALTHY_SECONDS
        )

    def rows(self, query: str) -> list[Any]:
        """Run a query on the target database."""
        with psycopg.connect(self.target_dsn) as connection:
            return connection.execute(query).fetchall()  # type: ignore[arg-type]

    def _dsn(self, user: str, secret: str, database: str) -> str:
        return f"postgresql://{user}:{self.values[secret]}@{HOST}:{self.values['POSTGRES_PORT']}/{database}"

    def _python(self, module: str, *arguments: str, **environ: str) -> CommandResult:
        code = f"import sys; from {module} import main; sys.exit(main())"
        # Tests add further pipeline files.
        variables = {"OUTBOX_PIPELINE": "connectors/library.yaml", **self.values, **environ}
        return run([sys.executable, "-c", code, *arguments], self.project, **variables)


@contextmanager
def start_compose_stack(
    project: Path, files: tuple[str, ...] = ("compose.yaml",), **changes: str
) -> Iterator[ComposeStack]:
    """Start a stack of these compose files. Delete its containers and volumes at the end, even after a failure."""
    env_file = project / "compose" / ".env"
    values = write_variables(env_file, **changes)
    compose = DockerCompose(
        context=str(REPOSITORY / "compose"),
        compose_file_name=list(files),
        env_file=str(env_file),
        profiles=["spark"],
        wait=True,
    )
    engine = docker.from_env()
    stack = ComposeStack(project, values, compose, engine)
    try:
        started = stack.command("up", "-d", "--wait", "--wait-timeout", "180", *services(stack))
        assert started.code == 0, f"{started.output}\n--- logs\n{stack.command('logs', '--tail', '20').stdout}"
        yield stack
    finally:
        stack.command("down", "--volumes", "--remove-orphans", "--timeout", "20")
        engine.close()


def services(stack: ComposeStack) -> list[str]:
    """Return the services that `make up` starts, which are all services except `spark`, because it has a profile."""
    names = stack.command("config", "--services").stdout.split()
    return [name for name in names if name != "spark"]
