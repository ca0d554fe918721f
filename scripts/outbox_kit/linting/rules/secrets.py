"""Secrets that stand where people can read them. A finding names the key, never the value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from outbox_kit.connector_config import PLACEHOLDER, schema_texts
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule
from outbox_kit.pipeline.layered_values import Literal

SECRET = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|jaas|user\.?info"
    r"|(api|private)[._-]?key|(keystore|ssl)\.key(\.pem)?$",
    re.IGNORECASE,
)
# What only speaks about a secret.
ABOUT = re.compile(
    r"\.(source|url|ms|seconds|class|file|path|location|provider|type|name|enabled?)$|_file$", re.IGNORECASE
)
# A password inside of a value: a URL's, or a login module's.
IN_URL = re.compile(r"://[^/@\s:]*:(?!\$\{)[^/@\s]+@")
IN_JAAS = re.compile(r"\b(password|secret)\s*=\s*[\"']?(?!\$\{)[^\s\"';]", re.IGNORECASE)
EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def is_secret(key: str) -> bool:
    """Whether a key sounds as if its value were a secret."""
    return SECRET.search(key) is not None and ABOUT.search(key) is None


def _plain(key: str, value: str) -> bool:
    if IN_URL.search(value):
        return True
    if not is_secret(key) or not value:
        return False
    if "jaas" in key.lower():
        return IN_JAAS.search(value) is not None
    return PLACEHOLDER.search(value) is None


@rule(
    "secret.connector",
    "no secret stands in the connector config as it is",
    why="the config is readable by everybody who reaches Kafka Connect, and is kept in the lock file",
)
def connector(target: Target) -> Iterator[Finding]:
    schemas = dict(schema_texts(target.config))
    for key, value in target.config.items():
        if key not in schemas and _plain(key, value):
            remedy = "write a placeholder that the worker resolves: ${env:NAME}, ${file:path:key}"
            yield Finding(f"{key} has its value in it", "a placeholder", remedy)


@rule(
    "secret.environment",
    "no secret stands in the environment file as it is",
    why="the file is under version control",
)
def environment(target: Target) -> Iterator[Finding]:
    for key in target.literals:
        yield Finding(f"{key} has its value in it", "an expression", f'write {key} as "{{{{ env.NAME }}}}"')


def literals(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of an environment file, as it is written, that hold a secret without an expression or placeholder."""
    return tuple(key for key, value in _leaves(data, "") if _literal(key, value))


def _literal(key: str, value: str) -> bool:
    if isinstance(value, Literal):  # of an environment variable, not of the file
        return False
    rest = PLACEHOLDER.sub("", EXPRESSION.sub("", value))
    if rest != value and is_secret(key):
        return False
    return bool(value) and (is_secret(key) or IN_URL.search(value) is not None)


def _leaves(node: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for key, item in node.items():
            yield from _leaves(item, f"{where}.{key}" if where else str(key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _leaves(item, f"{where}.{index}")
    elif node is not None and not isinstance(node, bool):
        yield where, node if isinstance(node, str) else str(node)


RULES = (connector, environment)
