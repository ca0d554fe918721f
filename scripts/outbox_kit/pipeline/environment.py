"""Define and validate the content of the environment file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from outbox_common.secret_patterns import has_secret
from outbox_events.http_session import HttpEndpoint, has_user_info
from outbox_kit.pipeline.allowed_properties import catalog_problem, librdkafka_problem, require_allowed
from outbox_kit.pipeline.names import (
    ConnectorRole,
    DatabaseName,
    HostName,
    Identifier,
    Model,
    PrintableName,
    ResourceName,
)

EXPRESSION_DESCRIPTION = 'Password, as an expression such as "{{ env.NAME }}".'


class Login(Model):
    """User name and password with which outbox-kit logs in to PostgreSQL."""

    user: PrintableName = Field(description="PostgreSQL role.")
    password: SecretStr = Field(description=EXPRESSION_DESCRIPTION)


SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
VERIFYING_MODES = ("verify-ca", "verify-full")
SSLMODE_TEXT = "libpq's sslmode; `verify-full` verifies the certificate and host. Default: PGSSLMODE or `prefer`."
URL_PATTERN = "^https?://"
CA_FILE_DESCRIPTION = "The server's CA certificate (PEM), as a path that can be relative to the project folder."


def without_credentials(contains: Callable[[str], bool], alternative: str) -> AfterValidator:
    """Return a validator that rejects credentials in URLs, because messages and plans contain the URLs."""

    def validate(url: str) -> str:
        if contains(url):
            raise ValueError(f"must not contain a user name or password: {alternative}")
        return url

    return AfterValidator(validate)


def may_have_user_info(address: str) -> bool:
    """Return whether a host or a list of addresses can contain a user name. A socket name can begin with @."""
    return has_secret(address) or "@" in address[1:]


def has_query(url: str) -> bool:
    """Return whether a URL has a query. A query can contain a token, and a path cannot be appended after a query."""
    return "?" in url


HttpUrl = Annotated[
    str,
    Field(pattern=URL_PATTERN),
    without_credentials(has_query, "remove the query (`?...`) and set `token` of this section"),
]
ServiceUrl = Annotated[HttpUrl, without_credentials(has_user_info, "set `username` and `password` of this section")]
ConverterUrl = Annotated[
    HttpUrl, without_credentials(has_user_info, "set the credentials of the converters in connector.overrides")
]
Host = Annotated[
    HostName, without_credentials(may_have_user_info, "set the host name, `user` and `password` separately")
]
BootstrapServers = Annotated[
    str, without_credentials(may_have_user_info, "set `sasl.username` and `sasl.password` of kafka.client")
]
TablePath = Annotated[str, without_credentials(has_secret, "set the credentials in the Spark configuration")]


SingleWriter = Annotated[
    bool,
    Field(
        description="Confirms that at most one Spark driver writes to the tables at a time. Required on S3 if "
        "conflicting commits of two drivers are not detected."
    ),
]


class TlsModel(Model):
    """Base class that checks the settings `sslmode` and `sslrootcert` of a model for consistency."""

    @model_validator(mode="after")
    def _require_verifying_mode(self) -> Self:
        """Reject sslrootcert if sslmode does not verify the server's certificate."""
        mode = getattr(self, "sslmode", None)
        if getattr(self, "sslrootcert", None) is not None and mode not in VERIFYING_MODES:
            raise ValueError(f"sslrootcert requires sslmode {' or '.join(VERIFYING_MODES)}, not {mode or 'none'}")
        return self


class ConnectorLogin(TlsModel):
    """Connection from the Connect worker to the database. The worker resolves the placeholder in `password`."""

    host: Host | None = Field(default=None, description="Host to which the worker connects. Default: source.host.")
    port: int | None = Field(default=None, description="Port to which the worker connects. Default: source.port.")
    sslmode: SslMode | None = Field(
        default=None, description="sslmode of the worker's connection. Default: source.sslmode."
    )
    sslrootcert: str | None = Field(
        default=None, description="The server's CA certificate (PEM), as a path on the worker."
    )
    user: ConnectorRole = Field(description="Role with LOGIN and REPLICATION.")
    password: str = Field(
        pattern=r"^\$\{[^}]+\}$", description="Password, as a placeholder: ${env:NAME} or ${file:path:key}."
    )


class SourceDatabase(TlsModel):
    """The PostgreSQL database that contains the outbox table."""

    host: Host = Field(description="Host to which outbox-kit connects.")
    port: int = Field(default=5432, ge=1, le=65535, description="Port to which outbox-kit connects.")
    database: DatabaseName = Field(description="Database that contains the outbox table.")
    sslmode: SslMode | None = Field(default=None, description=SSLMODE_TEXT)
    sslrootcert: Path | None = Field(default=None, description=CA_FILE_DESCRIPTION)
    admin: Login = Field(description="Login that owns the outbox table, and creates the publication and the slot.")
    connector: ConnectorLogin = Field(description="Login of the Connect worker.")
    verifier: Login | None = Field(
        default=None, description="Login for `verify` and `status`, which need fewer privileges. Default: admin."
    )

    @property
    def connector_address(self) -> tuple[str, int]:
        """Host and port to which the Connect worker connects."""
        return self.connector.host or self.host, self.connector.port or self.port


class Kafka(Model):
    """The Kafka cluster."""

    bootstrap_servers: BootstrapServers = Field(min_length=1, description="Broker addresses: host:port,...")
    cluster_id: str | None = Field(
        default=None, min_length=1, description="Expected cluster id; commands refuse to write to another cluster."
    )
    client: Annotated[dict[str, str], AfterValidator(partial(require_allowed, problem_of=librdkafka_problem))] = Field(
        default={}, repr=False, description="Additional librdkafka settings (security.protocol, ...)."
    )
    replication_factor: int = Field(default=3, ge=1, description="Replication factor of the topics.")
    min_insync_replicas: int = Field(default=2, ge=1, description="min.insync.replicas of the topics.")


class HttpService(Model):
    """An HTTP service: the schema registry or Kafka Connect."""

    url: ServiceUrl = Field(description="Base URL.")
    username: str | None = Field(default=None, description="User name for basic authentication.")
    password: SecretStr | None = Field(default=None, description=EXPRESSION_DESCRIPTION)
    token: SecretStr | None = Field(
        default=None, description='Bearer token, used instead of user name and password: "{{ env.NAME }}".'
    )
    ca_file: Path | None = Field(default=None, description=CA_FILE_DESCRIPTION)
    certificate_file: Path | None = Field(default=None, description="Client certificate (PEM), for mutual TLS.")
    key_file: Path | None = Field(
        default=None, description="Private key of the client certificate (PEM, not encrypted)."
    )

    def endpoint(self) -> HttpEndpoint:
        """Return the URL, the credentials and the TLS files, with secrets as plain text."""
        values = self.plain_values()
        return HttpEndpoint(**{name: values[name] for name in HttpEndpoint.__dataclass_fields__})


class Registry(HttpService):
    """The schema registry."""

    connector_url: ConverterUrl | None = Field(
        default=None,
        description="URL to which the worker connects. Default: url. Only the templates `outbox-postgres-chain` and "
        "`sink-jdbc` use this URL.",
    )


def _storage_topic(content: str, worker_default: str) -> Any:  # noqa: ANN401 - pydantic's FieldInfo in place of a value
    text = f"{content}.storage.topic of the workers. `verify` checks this topic. Default: {worker_default}."
    return Field(default=None, min_length=1, description=text)


class Connect(HttpService):
    """Kafka Connect and its workers."""

    workers: list[ServiceUrl] = Field(
        default=[],
        description="Base URLs of all workers. If `url` does not respond, commands use the first worker that responds. "
        "`verify` checks the plugins and the Kafka cluster of every worker.",
    )
    config_topic: str | None = _storage_topic("config", worker_default="connect-configs")
    offset_topic: str | None = _storage_topic("offset", worker_default="connect-offsets")
    status_topic: str | None = _storage_topic("status", worker_default="connect-status")

    @property
    def addresses(self) -> list[str]:
        """URLs of the REST API without duplicates, in the order in which they are tried: `url`, then the workers."""
        return list(dict.fromkeys(address.rstrip("/") for address in (self.url, *self.workers)))


class ConnectorSettings(Model):
    """Connector settings that differ by environment."""

    exactly_once: Literal["required", "requested"] = Field(
        default="required", description="exactly.once.support. Connect rejects `required` if the worker lacks support."
    )
    heartbeat_interval_ms: int = Field(
        default=10_000,
        ge=100,
        description="Interval of heartbeats, in ms. Heartbeats advance the slot when no rows are written.",
    )
    poll_interval_ms: int = Field(default=5, ge=1, description="Interval at which Debezium polls for rows, in ms.")
    max_record_bytes: int = Field(
        default=1_000_000, ge=10_000, description="Maximum record size in bytes; larger rows become dead letters."
    )
    state: Literal["running", "paused", "stopped"] = Field(
        default="running", description="State of the connector after `apply`."
    )
    stability_seconds: float = Field(
        default=2.0,
        ge=0.5,
        le=600,
        description="Time in seconds for which a connector must be RUNNING continuously to count as started.",
    )
    delivery_timeout_ms: int = Field(
        default=120_000, ge=1_000, description="Time in ms after which the task fails if a record is not delivered."
    )


class PostgresTarget(TlsModel):
    """PostgreSQL schema that contains materialized tables."""

    kind: Literal["postgres"] = Field(description="Type of the target.")
    host: Host = Field(description="Host to which the Spark driver and executors connect.")
    port: int = Field(default=5432, ge=1, le=65535, description="Port to which the Spark driver and executors connect.")
    database: DatabaseName = Field(description="Database that contains the target tables.")
    sslmode: SslMode | None = Field(
        default=None, description="sslmode for libpq and PostgreSQL's JDBC driver. Default: prefer."
    )
    sslrootcert: Path | None = Field(
        default=None,
        description="The server's CA certificate (PEM): an absolute path on the Spark driver and executors, or a path "
        "relative to the project folder.",
    )
    user: PrintableName = Field(description="Role that owns the target tables.")
    password: SecretStr = Field(description=EXPRESSION_DESCRIPTION)
    target_schema: Identifier = Field(default="public", alias="schema", description="Schema of the tables.")


class DeltaTarget(Model):
    """Folder or object store prefix that contains Delta tables."""

    kind: Literal["delta"] = Field(description="Type of the target.")
    path: TablePath = Field(description="URL, absolute path, or path relative to the project folder.")
    single_writer: SingleWriter = False


class IcebergTarget(Model):
    """Namespace of an Iceberg catalog."""

    kind: Literal["iceberg"] = Field(description="Type of the target.")
    namespace: Identifier = Field(description="Namespace of the tables.")
    catalog: Annotated[dict[str, str], AfterValidator(partial(require_allowed, problem_of=catalog_problem))] = Field(
        description="Settings of Iceberg's Spark catalog: type, warehouse, uri, ..."
    )
    single_writer: SingleWriter = False


Target = Annotated[PostgresTarget | DeltaTarget | IcebergTarget, Field(discriminator="kind")]

REMOVED_TARGET_KINDS = {
    "parquet": "use `kind: delta` or `kind: iceberg`; "
    "`outbox-materialize --export DIR --export-format parquet` exports a Delta or Iceberg table to plain Parquet files"
}
"""Hints for target kinds that earlier versions supported."""


class Environment(Model):
    """One environment to which pipelines are deployed."""

    name: ResourceName = Field(
        description="Name of the environment, which is the file name without `.yaml` or `.example.yaml`. It cannot be "
        "changed after the first apply."
    )
    protected: bool = Field(
        default=False, description="Refuse `outbox destroy` and `outbox offsets reset` in this environment."
    )
    env_file: Path | None = Field(
        default=None,
        description="File of NAME=value lines, such as Docker Compose's .env. It supplies each {{ env.NAME }} whose "
        "variable is not set in the process. A relative path is relative to the project folder.",
    )
    source: SourceDatabase = Field(description="Database that contains the outbox table.")
    kafka: Kafka = Field(description="The Kafka cluster.")
    registry: Registry = Field(
        description="Schema registry with a Confluent-compatible API, such as http://host/apis/ccompat/v7."
    )
    connect: Connect = Field(description="Kafka Connect REST API.")
    connector: ConnectorSettings = Field(default=ConnectorSettings(), description="Connector settings.")
    targets: dict[str, Target] = Field(default={}, description="Targets for materialized tables, by name.")
    pipeline: dict[str, Any] = Field(default={}, description="Values that override keys of the pipeline file.")
    lock_folder: Path = Field(
        default=Path("connectors"),
        description="Folder for <pipeline>.<environment>.lock.json, relative to the project folder.",
    )
