"""PostgreSQL with logical replication."""

from __future__ import annotations

from testcontainers.core.network import Network

from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.databases import Logins
from outbox_kit.stack.services.postgres import REPLICATION
from outbox_kit.stack.state import password
from outbox_kit.testing.container import StackContainer
from outbox_kit.testing.images import Images
from outbox_kit.waiting import Seen


class PostgresContainer(StackContainer):
    """A server with wal_level=logical and the stack's roles and databases."""

    inner_port = 5432

    def __init__(
        self,
        image: str = Images.postgres,
        *,
        network: Network | None = None,
        name: str = "postgres",
        source_database: str = "library",
        target_database: str = "warehouse",
    ) -> None:
        super().__init__(image, name=name, network=network)
        self.admin_password = password()
        self.logins = Logins(
            connector_password=password(),
            materializer_password=password(),
            registry_password=password(),
            source_database=source_database,
            target_database=target_database,
        )
        self.with_envs(POSTGRES_USER=self.logins.admin_user, POSTGRES_PASSWORD=self.admin_password)
        self.with_command(["postgres", *(f"-c{key}={value}" for key, value in REPLICATION.items())])

    @property
    def source_dsn(self) -> str:
        """DSN of the source database as administrator, with the password."""
        return self.dsn(self.logins.admin_user, self.admin_password, self.logins.source_database)

    @property
    def target_dsn(self) -> str:
        """DSN of the target database as the owner of its tables, with the password."""
        return self.dsn(self.logins.materializer_user, self.logins.materializer_password, self.logins.target_database)

    def dsn(self, user: str, secret: str, database: str) -> str:
        """Return a libpq URI of one login for this machine."""
        return f"postgresql://{user}:{secret}@{HOST}:{self.port}/{database}"

    def check(self) -> Seen[bool]:
        """Connect, and create the roles and databases that are missing."""
        return health_checks.check_postgres(
            self.dsn(self.logins.admin_user, self.admin_password, "postgres"), self.logins
        )
