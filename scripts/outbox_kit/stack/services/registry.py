"""Run Apicurio as the schema registry, through its Confluent API. Its data is in the stack's PostgreSQL server.

By default, Apicurio stores data in memory, and would assign existing schema ids to other schemas after a restart.
"""

from __future__ import annotations

from pathlib import Path

from outbox_events.waiting import Observation
from outbox_kit.stack import health_checks
from outbox_kit.stack.errors import StackError, setup_hint
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.databases import Logins
from outbox_kit.stack.services.jvm import jvm_command
from outbox_kit.stack.services.service import Program, Service
from outbox_kit.stack.state import StackState


def registry_environment(state: StackState) -> dict[str, str]:
    return {
        "QUARKUS_HTTP_HOST": HOST,
        "QUARKUS_HTTP_PORT": str(state.ports["registry"]),
        **storage_variables(f"{HOST}:{state.postgres_port}", state),
    }


def storage_variables(address: str, logins: Logins) -> dict[str, str]:
    """Return the environment variables for storage in the PostgreSQL server at `address` (host:port)."""
    return {
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "postgresql",
        "APICURIO_DATASOURCE_URL": f"jdbc:postgresql://{address}/{logins.registry_database}",
        "APICURIO_DATASOURCE_USERNAME": logins.registry_user,
        "APICURIO_DATASOURCE_PASSWORD": logins.registry_password,
        # The defaults, 20 to 100 connections, would use up the connections of the server.
        "APICURIO_DATASOURCE_JDBC_INITIAL_SIZE": "2",
        "APICURIO_DATASOURCE_JDBC_MIN_SIZE": "2",
        "APICURIO_DATASOURCE_JDBC_MAX_SIZE": "10",
    }


class Registry(Service):
    """The schema registry as a service of the stack."""

    name = "registry"
    requires = ("postgres",)
    start_seconds = 90.0

    def prepare(self) -> None:
        """Check that the registry is installed. All settings of the registry are environment variables."""
        self.jar()

    def jar(self) -> Path:
        """Return the path of the runner jar. Raises StackError if `make setup` has not been run."""
        folder = self.layout.runtime / "registry"
        jars = sorted(folder.glob("apicurio-registry-app-*-runner.jar"))
        if not jars:
            raise StackError(f"{folder} does not contain the registry", setup_hint())
        return jars[-1]

    def program(self) -> Program:
        command = jvm_command(
            self.context,
            self.name,
            heap="320m",
            # A short start time is more important than throughput, because each deployment sends few requests.
            options=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            main=("-jar", str(self.jar())),
        )
        return Program(command, environment=registry_environment(self.state))

    def check(self) -> Observation[bool]:
        return health_checks.check_registry(self.state.registry)
