"""The schema registry: Apicurio with its Confluent API, stored in the stack's own PostgreSQL.

In memory, its default, a restart would hand out the same schema ids for other schemas.
"""

from __future__ import annotations

from pathlib import Path

from outbox_kit.errors import StackError
from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.databases import Logins
from outbox_kit.stack.services.jvm import jvm_command
from outbox_kit.stack.services.service import Context, Program
from outbox_kit.stack.state import StackState
from outbox_kit.waiting import Seen


def registry_environment(state: StackState) -> dict[str, str]:
    """Return what the registry is told through its environment."""
    return {
        "QUARKUS_HTTP_HOST": HOST,
        "QUARKUS_HTTP_PORT": str(state.ports["registry"]),
        **storage(f"{HOST}:{state.postgres_port}", state.logins()),
    }


def storage(address: str, logins: Logins) -> dict[str, str]:
    """Return where the registry stores: the PostgreSQL server at `address`, host:port."""
    return {
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "postgresql",
        "APICURIO_DATASOURCE_URL": f"jdbc:postgresql://{address}/{logins.registry_database}",
        "APICURIO_DATASOURCE_USERNAME": logins.registry_user,
        "APICURIO_DATASOURCE_PASSWORD": logins.registry_password,
        # Its defaults, 20 and up to 100, would leave none of the server's connections to others.
        "APICURIO_DATASOURCE_JDBC_INITIAL_SIZE": "2",
        "APICURIO_DATASOURCE_JDBC_MIN_SIZE": "2",
        "APICURIO_DATASOURCE_JDBC_MAX_SIZE": "10",
    }


class Registry:
    """The registry part."""

    name = "registry"
    after: tuple[str, ...] = ("postgres",)
    seconds = 90.0

    def __init__(self, context: Context) -> None:
        self.context = context

    def prepare(self) -> None:
        """Check that the registry was resolved; it is configured by its environment alone."""
        self.jar()

    def jar(self) -> Path:
        """Return the runner; StackError when `make setup` has not run."""
        folder = self.context.layout.runtime / "registry"
        jars = sorted(folder.glob("apicurio-registry-app-*-runner.jar"))
        if not jars:
            message = f"{folder} does not hold the registry"
            raise StackError(message, "run `make setup`")
        return jars[-1]

    def program(self) -> Program:
        """Return the registry's process."""
        command = jvm_command(
            self.context,
            self.name,
            heap="320m",
            # It answers a few calls per deployment: what counts is how soon it starts.
            options=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            run=("-jar", str(self.jar())),
        )
        return Program(command, environment=registry_environment(self.context.state))

    def look(self) -> Seen[bool]:
        """Ask for the list of subjects."""
        return health_checks.registry(self.context.state.registry)
