"""Define rules against plain-text secrets in files and on connections. A finding contains the key, never the value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from outbox_common.secret_patterns import has_secret, is_secret_name
from outbox_kit.connect.connector_config import PLACEHOLDER, schema_texts
from outbox_kit.linting.lint_rule import UNSET, LintInput, LintRules, is_loopback, violation
from outbox_kit.pipeline import Environment, PostgresTarget
from outbox_kit.pipeline.environment import IcebergTarget
from outbox_kit.pipeline.values_with_origins import LiteralText
from outbox_kit.results.checks import Finding, Severity

SSLMODE = "verify-full"
PROTOCOL_KEY = "security.protocol"
# Suffixes of keys whose value is not a secret but describes a secret, such as the path of a file.
DESCRIPTIVE_SUFFIX = re.compile(
    r"\.(source|url|ms|seconds|class|file|path|location|provider|type|name|enabled?)$|_file$|key[._-]id$", re.IGNORECASE
)
EXPRESSION_PATTERN = re.compile(r"\{\{.*?\}\}", re.DOTALL)
RULES = LintRules()


def is_secret_key(key: str) -> bool:
    """Return whether a key's name indicates that the value is a secret."""
    return is_secret_name(key) and DESCRIPTIVE_SUFFIX.search(key) is None


def _is_plain_text_secret(key: str, value: str) -> bool:
    if has_secret(PLACEHOLDER.sub("", value)):
        return True
    # The options of a login module do not always contain a password.
    if not is_secret_key(key) or not value or "jaas" in key.lower():
        return False
    return PLACEHOLDER.search(value) is None


@RULES.rule(
    "secret.connector",
    "the connector config does not contain secrets in plain text",
    reason="the REST API of Kafka Connect returns the connector config, and the lock file contains it",
)
def check_connector(lint_input: LintInput) -> Iterator[Finding]:
    schemas = dict(schema_texts(lint_input.config))
    for key, value in lint_input.config.items():
        if key not in schemas and _is_plain_text_secret(key, value):
            remedy = f"set {key} to a placeholder that the worker resolves: ${{env:NAME}} or ${{file:path:key}}"
            yield violation(f"{key} is in plain text", "a placeholder", remedy)


@RULES.rule(
    "secret.environment",
    "the environment file does not contain secrets in plain text",
    reason="the file is under version control",
)
def check_environment(lint_input: LintInput) -> Iterator[Finding]:
    for key in lint_input.plain_text_secrets:
        yield violation(f"{key} is in plain text", "an expression", f'set {key} to "{{{{ env.NAME }}}}"')


def plain_text_secrets(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys whose value is a secret in plain text. Expressions in `data` are not expanded."""
    return tuple(key for key, value in _leaves(data, "") if _is_plain_text_secret_in_file(key, value))


def _is_plain_text_secret_in_file(key: str, value: str) -> bool:
    if isinstance(value, LiteralText):  # an OUTBOX__ variable, not the file, contains the value
        return False
    has_reference = PLACEHOLDER.search(value) is not None or EXPRESSION_PATTERN.search(value) is not None
    if has_reference and is_secret_key(key):
        return False
    return bool(value) and (is_secret_key(key) or has_secret(PLACEHOLDER.sub("", EXPRESSION_PATTERN.sub("", value))))


def _leaves(node: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for key, item in node.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _leaves(item, f"{path}.{index}")
    elif node is not None and not isinstance(node, bool):
        yield path, node if isinstance(node, str) else str(node)


@RULES.rule(
    "secret.connection",
    "passwords and tokens are sent to other machines only over TLS: https for URLs, SASL_SSL for Kafka, and "
    f"sslmode {SSLMODE} for PostgreSQL",
    reason="otherwise an attacker on the network can read the password, or impersonate the server and receive it",
    severity=Severity.WARNING,
)
def check_connections(lint_input: LintInput) -> Iterator[Finding]:
    environment = lint_input.environment
    for key, url in _urls_with_credentials(environment):
        if url.lower().startswith("http://") and not is_loopback(urlsplit(url).hostname or ""):
            yield violation(f"{key} is not encrypted, and credentials are set", "https", f"set {key} to an https URL")
    protocol = environment.kafka.client.get(PROTOCOL_KEY, "")
    if protocol.upper() == "SASL_PLAINTEXT" and not lint_input.is_local:
        key = f"kafka.client.{PROTOCOL_KEY}"
        yield violation(f"{key} is {protocol}", "SASL_SSL", f"set {key} to SASL_SSL")
    for section, host, mode in _databases(lint_input):
        if mode != SSLMODE and not is_loopback(host):
            remedy = f"set {section}.sslmode to {SSLMODE}, and {section}.sslrootcert to the server's CA certificate"
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
    """Yield the section, host and sslmode of each connection to PostgreSQL."""
    source = lint_input.environment.source
    yield "source", source.host, source.sslmode
    worker_host = lint_input.config.get("database.hostname", "localhost")
    # If outbox-kit uses a loopback address, a name without a dot is the name of a container on the same machine.
    if "." in worker_host or not is_loopback(source.host):
        yield "source.connector", worker_host, lint_input.config.get("database.sslmode")
    for name, target in lint_input.environment.targets.items():
        if isinstance(target, PostgresTarget):
            yield f"targets.{name}", target.host, target.sslmode
