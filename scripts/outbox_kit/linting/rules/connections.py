"""Rule against passwords and tokens on connections that are not encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from outbox_kit.linting.lint_input import LintInput, is_loopback
from outbox_kit.linting.lint_rule import UNSET, LintRules, violation
from outbox_kit.linting.rules.secrets import is_secret_key
from outbox_kit.pipeline import Environment, PostgresTarget
from outbox_kit.pipeline.environment import IcebergTarget
from outbox_kit.results.checks import Finding, Severity

SSLMODE = "verify-full"
PROTOCOL_KEY = "security.protocol"
RULES = LintRules()


@RULES.rule(
    "secret.connection",
    "passwords and tokens are sent only over TLS: to URLs with https, to Kafka not with SASL_PLAINTEXT, and to "
    f"PostgreSQL with sslmode {SSLMODE}; except to this machine",
    reason="others on the network can read the password, or pose as the server and receive it",
    severity=Severity.WARNING,
)
def check_connections(lint_input: LintInput) -> Iterator[Finding]:
    environment = lint_input.environment
    for key, url in _urls_with_credentials(environment):
        if url.lower().startswith("http://") and not is_loopback(urlsplit(url).hostname or ""):
            yield violation(f"{key} is not encrypted, and credentials are set", "https", f"set {key} to a https URL")
    protocol = environment.kafka.client.get(PROTOCOL_KEY, "")
    if protocol.upper() == "SASL_PLAINTEXT" and not lint_input.is_local:
        key = f"kafka.client.{PROTOCOL_KEY}"
        yield violation(f"{key} is {protocol}", "SASL_SSL", f"set {key} to SASL_SSL")
    for section, host, mode in _databases(lint_input):
        if mode != SSLMODE and not is_loopback(host):
            remedy = f"set {section}.sslmode to {SSLMODE}, and {section}.sslrootcert to its CA certificate"
            yield violation(f"{section}.sslmode is {mode or UNSET}", SSLMODE, remedy)


def _urls_with_credentials(environment: Environment) -> Iterator[tuple[str, str]]:
    """Yield the key and value of each URL to which credentials are sent."""
    registry, connect = environment.registry, environment.connect
    if registry.username or registry.token:
        yield "registry.url", registry.url
    if connect.username or connect.token:
        yield "connect.url", connect.url
        yield from ((f"connect.workers.{index}", url) for index, url in enumerate(connect.workers))
    for name, target in environment.targets.items():
        if isinstance(target, IcebergTarget) and any(map(is_secret_key, target.catalog)):
            yield f"targets.{name}.catalog.uri", target.catalog.get("uri", "")


def _databases(lint_input: LintInput) -> Iterator[tuple[str, str, str | None]]:
    """Yield section, host and sslmode of each connection to PostgreSQL."""
    source = lint_input.environment.source
    yield "source", source.host, source.sslmode
    worker_host = lint_input.config.get("database.hostname", "localhost")
    # If outbox-kit uses a loopback address, a name without a dot is that of a container on the same machine.
    if "." in worker_host or not is_loopback(source.host):
        yield "source.connector", worker_host, lint_input.config.get("database.sslmode")
    for name, target in lint_input.environment.targets.items():
        if isinstance(target, PostgresTarget):
            yield f"targets.{name}", target.host, target.sslmode
