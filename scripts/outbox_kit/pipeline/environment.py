"""The environment file: addresses, credentials and replication of one target. Pure data, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from outbox_kit.pipeline.model import Identifier, Model, TopicPart


class Login(Model):
    """A user that the kit itself logs in as."""

    user: str = Field(min_length=1, description="Role to log in as.")
    password: SecretStr = Field(description='Never written down: "{{ env.NAME }}".')


SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
VERIFYING = ("verify-ca", "verify-full")
SSLMODE = "As libpq knows it; `verify-full` checks the certificate and its name. Default: libpq's, or PGSSLMODE."
URL = "^https?://"
SSLROOTCERT = "Authority that signed the server's certificate (PEM); paths are relative to the project folder."


class Tls(Model):
    """TLS of a PostgreSQL connection, by libpq's names, which the JDBC driver shares."""

    @model_validator(mode="after")
    def _authority_is_used(self) -> Self:
        """An authority that is named and not asked would let everybody pass for the server."""
        mode = getattr(self, "sslmode", None)
        if getattr(self, "sslrootcert", None) is not None and mode not in VERIFYING:
            raise ValueError(f"sslrootcert is used with sslmode {' or '.join(VERIFYING)} only; sslmode is {mode}")
        return self


class ConnectorLogin(Tls):
    """How the Connect worker reaches the database; passed on verbatim, resolved by the worker."""

    host: str | None = Field(default=None, description="As the worker sees it. Default: source.host.")
    port: int | None = Field(default=None, description="As the worker sees it. Default: source.port.")
    sslmode: SslMode | None = Field(default=None, description="Of the worker's connection. Default: source.sslmode.")
    sslrootcert: str | None = Field(default=None, description="Authority's certificate (PEM), as the worker sees it.")
    user: str = Field(min_length=1, description="Role with LOGIN and REPLICATION.")
    password: str = Field(
        pattern=r"^\$\{[^}]+\}$", description="A placeholder that the worker resolves: ${env:NAME}, ${file:path:key}."
    )


class SourceDatabase(Tls):
    """The PostgreSQL database that holds the outbox table."""

    host: str = Field(description="As this tool sees it.")
    port: int = Field(default=5432, ge=1, le=65535, description="As this tool sees it.")
    database: str = Field(min_length=1, description="Database that holds the outbox table.")
    sslmode: SslMode | None = Field(default=None, description=SSLMODE)
    sslrootcert: Path | None = Field(default=None, description=SSLROOTCERT)
    admin: Login = Field(description="Owner of the outbox table; creates publication and slot.")
    connector: ConnectorLogin = Field(description="How the Connect worker logs in.")
    verifier: Login | None = Field(
        default=None, description="Role that `verify` and `status` log in as, with fewer rights. Default: admin."
    )


class Kafka(Model):
    """The Kafka cluster."""

    bootstrap_servers: str = Field(min_length=1, description="host:port,...")
    cluster_id: str | None = Field(
        default=None, min_length=1, description="Expected cluster id; any other cluster is refused before a write."
    )
    client: dict[str, str] = Field(
        default={}, repr=False, description="Further librdkafka settings (security.protocol, ...)."
    )
    replication_factor: int = Field(default=3, ge=1, description="Of topics that the kit creates.")
    min_insync_replicas: int = Field(default=2, ge=1, description="Of topics that the kit creates.")


class HttpService(Model):
    """An HTTP service: the registry, or Kafka Connect."""

    url: str = Field(pattern=URL, description="Base URL.")
    username: str | None = Field(default=None, description="Basic authentication, where it is asked for.")
    password: SecretStr | None = Field(default=None, description='Never written down: "{{ env.NAME }}".')
    token: SecretStr | None = Field(default=None, description='Bearer token, instead of a password: "{{ env.NAME }}".')
    ca_file: Path | None = Field(
        default=None,
        description="Authority that signed the server's certificate (PEM); paths are relative to the project folder.",
    )
    certificate_file: Path | None = Field(default=None, description="Client certificate (PEM), for mutual TLS.")
    key_file: Path | None = Field(default=None, description="Key of the client certificate (PEM, not encrypted).")


class Registry(HttpService):
    """The schema registry, as this tool and as a Connect worker reach it."""

    connector_url: str | None = Field(
        default=None,
        pattern=URL,
        description="As the worker sees it. Default: url. Only template `outbox-postgres-chain` has the worker ask it.",
    )


class Connect(HttpService):
    """Kafka Connect, and each of its workers."""

    workers: list[Annotated[str, Field(pattern=URL)]] = Field(
        default=[],
        description="Base URL of every worker of this cluster. A command whose `url` does not answer works through the "
        "first that does; `verify` asks each one for its plugins and its Kafka cluster.",
    )

    @property
    def addresses(self) -> list[str]:
        """`url` and every worker, each once, in the order in which they are asked."""
        return list(dict.fromkeys(address.rstrip("/") for address in (self.url, *self.workers)))


class ConnectorSettings(Model):
    """What differs by environment in the connector itself."""

    exactly_once: Literal["required", "requested"] = Field(
        default="required",
        description="Connect's exactly.once.support; `required` refuses a worker without it.",
    )
    heartbeat_interval_ms: int = Field(default=10_000, ge=100, description="Moves the slot on a quiet outbox.")
    poll_interval_ms: int = Field(default=5, ge=1, description="Debezium waits this long for more rows, ms.")
    max_record_bytes: int = Field(default=1_000_000, ge=10_000, description="A larger row is a dead letter.")
    state: Literal["running", "paused", "stopped"] = Field(
        default="running", description="State that `apply` leaves the connector in."
    )
    stability_seconds: float = Field(
        default=2.0, ge=0.5, le=600, description="RUNNING for so long, without a break, counts as running."
    )
    delivery_timeout_ms: int = Field(
        default=120_000, ge=1_000, description="The connector's producer gives a record up after this long."
    )


class PostgresTarget(Tls):
    """A PostgreSQL schema that tables are materialized into."""

    kind: Literal["postgres"] = Field(description="Chooses the sink.")
    host: str = Field(description="As the Spark driver and its executors see it.")
    port: int = Field(default=5432, ge=1, le=65535, description="As the Spark driver and its executors see it.")
    database: str = Field(description="Database of the target tables.")
    sslmode: SslMode | None = Field(
        default=None, description="As libpq and PostgreSQL's JDBC driver know it. Default: theirs, prefer."
    )
    sslrootcert: Path | None = Field(
        default=None,
        description="Authority's certificate (PEM), as driver and executors see it; a relative path is relative to "
        "the project folder.",
    )
    user: str = Field(description="Owner of the target tables.")
    password: SecretStr = Field(description='Never written down: "{{ env.NAME }}".')
    target_schema: Identifier = Field(default="public", alias="schema", description="Schema of the tables.")


class DeltaTarget(Model):
    """A folder (or object store prefix) of Delta tables."""

    kind: Literal["delta"] = Field(description="Chooses the sink.")
    path: str = Field(description="Folder or URL; a relative one is relative to the project folder.")


class IcebergTarget(Model):
    """A namespace of an Iceberg catalog."""

    kind: Literal["iceberg"] = Field(description="Chooses the sink.")
    namespace: Identifier = Field(description="Namespace of the tables.")
    catalog: dict[str, str] = Field(
        description="Settings of the catalog as Iceberg's Spark catalog takes them: type, warehouse, uri, ..."
    )


Target = Annotated[PostgresTarget | DeltaTarget | IcebergTarget, Field(discriminator="kind")]

REMOVED_TARGET_KINDS = {
    "parquet": "use `kind: delta` or `kind: iceberg`; "
    "`outbox-materialize --export DIR --export-format parquet` writes plain Parquet files of such a table"
}
"""Hints for target kinds that earlier versions had."""


class Environment(Model):
    """One place that a pipeline is deployed to."""

    name: TopicPart = Field(description="Name of the environment, as the file is called.")
    env_file: Path | None = Field(
        default=None,
        description="Variables for {{ env.NAME }} that the process's own environment does not have: NAME=value lines, "
        "as Docker Compose's .env; relative to the project folder.",
    )
    source: SourceDatabase = Field(description="The database with the outbox table.")
    kafka: Kafka = Field(description="The Kafka cluster.")
    registry: Registry = Field(description="Confluent-compatible API, for instance http://host/apis/ccompat/v7.")
    connect: Connect = Field(description="Kafka Connect REST API.")
    connector: ConnectorSettings = Field(default=ConnectorSettings(), description="Connector settings.")
    targets: dict[str, Target] = Field(default={}, description="Where tables are materialized, by name.")
    pipeline: dict[str, Any] = Field(
        default={}, description="What differs here in the pipeline file: merged over it, key by key."
    )
    lock_folder: Path = Field(
        default=Path("connectors"),
        description="Where <pipeline>.<environment>.lock.json is kept, relative to the project folder.",
    )
