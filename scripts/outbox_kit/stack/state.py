"""Define the stack's state, which is stored in build/stack/state.json, and the addresses of its services."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import uuid
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from outbox_kit import __version__
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import SECRETS_FOLDER
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.databases import Logins

PURGE_HINT = "run `outbox stack down --purge` to delete the stack's data and start over"


def kafka_cluster_id() -> str:
    """Return a new cluster id in Kafka's format, a UUID in 22 characters of URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # The storage tool would parse an id with a leading dash as an option.
        if not text.startswith("-"):
            return text


class StackState(Logins):
    """Running services, and the ports, names and passwords that `down` retains."""

    format: Literal[1] = 1
    version: str = __version__
    """Version of outbox-kit that wrote the file."""
    ports: dict[str, int]
    services: tuple[str, ...] = ()
    """The services that `up` started. The tuple is empty while the stack is down."""
    supervisor_pid: int | None = None
    """Process id of supervisord, or None while the stack is down."""
    postgres_home: Path
    """Folder that contains PostgreSQL's binaries and data."""
    postgres_user: str | None = None
    """Operating system user of PostgreSQL, or None if PostgreSQL runs as the user who starts the stack."""
    kafka_cluster_id: str = Field(default_factory=kafka_cluster_id)

    @property
    def postgres_host(self) -> str:
        return HOST

    @property
    def postgres_port(self) -> int:
        return self.ports["postgres"]

    @property
    def postgres(self) -> str:
        """DSN of the source database, with the administrator's name and password."""
        return self.dsn(self.admin_user, self.admin_password, self.source_database)

    @property
    def target(self) -> str:
        """DSN of the target database, with the name and password of its owner."""
        return self.dsn(self.materializer_user, self.materializer_password, self.target_database)

    @property
    def kafka(self) -> str:
        """Address of the bootstrap server (host:port)."""
        return f"{HOST}:{self.ports['kafka']}"

    @property
    def connect(self) -> str:
        """URL of the Connect worker."""
        return f"http://{HOST}:{self.ports['connect']}"

    @property
    def registry(self) -> str:
        """URL of the registry's Confluent API."""
        return f"http://{HOST}:{self.ports['registry']}/apis/ccompat/v7"

    def dsn(self, user: str, secret: str, database: str) -> str:
        """Return a libpq URI of the stack's PostgreSQL server for one user."""
        return f"postgresql://{user}:{secret}@{HOST}:{self.postgres_port}/{database}"

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the services that were started, in the order of `outbox stack status`."""
        addresses = {
            "postgres": ("postgres", self.postgres),
            "target": ("postgres", self.target),
            "kafka": ("kafka", self.kafka),
            "connect": ("connect", self.connect),
            "registry": ("registry", self.registry),
        }
        return {name: address for name, (service, address) in addresses.items() if service in self.services}

    def template_values(self) -> dict[str, str | int]:
        """Return the values that an environment file can use as `stack.NAME`."""
        names = (
            "postgres_host postgres_port admin_user admin_password source_database target_database "
            "connector_user connector_password materializer_user materializer_password "
            "kafka connect registry kafka_cluster_id"
        )
        return {name: getattr(self, name) for name in names.split()}

    def passwords(self) -> tuple[str, ...]:
        """Return all passwords, so that messages and logs can be redacted."""
        return (self.admin_password, self.connector_password, self.materializer_password, self.registry_password)

    def stopped(self) -> StackState:
        return self.model_copy(update={"services": (), "supervisor_pid": None})


def read_state(path: Path) -> StackState | None:
    """Read the state file. Returns None if it does not exist. Raises StackError if it is unusable."""
    try:
        return StackState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackError(f"cannot read {path}: {error.strerror}", "run the command as the owner of the file") from error
    except ValidationError as error:
        # Pydantic's message is not used, because it quotes the input, including passwords.
        locations = ", ".join(".".join(map(str, item["loc"])) or "the whole file" for item in error.errors())
        raise StackError(f"{path} is not a state file of this version (invalid: {locations})", PURGE_HINT) from None


def write_state(path: Path, state: StackState) -> None:
    """Replace the state file atomically. The file is readable only by its owner at all times."""
    descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=".state-")  # creates the file with mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            # Environment files refer only to `environment`, so that they do not depend on the fields of this class.
            values = {**state.template_values(), "secrets_folder": str(path.parent.resolve() / SECRETS_FOLDER)}
            json.dump({**state.model_dump(mode="json"), "environment": values}, file, indent=2)
            file.write("\n")
        Path(temporary_name).replace(path)
    except BaseException:
        Path(temporary_name).unlink(missing_ok=True)
        raise
