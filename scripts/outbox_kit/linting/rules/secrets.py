"""Rules against secrets in plain text. A finding contains the key, never the value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from outbox_common.secret_patterns import has_secret, is_secret_name
from outbox_kit.connect.connector_config import PLACEHOLDER, schema_texts
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, violation
from outbox_kit.pipeline.values_with_origins import LiteralText
from outbox_kit.results.checks import Finding

# Suffixes of keys whose value is not a secret but describes one, such as the path of a file.
DESCRIPTIVE_SUFFIX = re.compile(
    r"\.(source|url|ms|seconds|class|file|path|location|provider|type|name|enabled?)$|_file$|key[._-]id$", re.IGNORECASE
)
EXPRESSION_PATTERN = re.compile(r"\{\{.*?\}\}", re.DOTALL)
RULES = LintRules()


def is_secret_key(key: str) -> bool:
    """Return whether the value of a key is a secret, according to the name of the key."""
    return is_secret_name(key) and DESCRIPTIVE_SUFFIX.search(key) is None


def _is_plain_text_secret(key: str, value: str) -> bool:
    if has_secret(PLACEHOLDER.sub("", value)):
        return True
    # The options of a login module can contain no password.
    if not is_secret_key(key) or not value or "jaas" in key.lower():
        return False
    return PLACEHOLDER.search(value) is None


@RULES.rule(
    "secret.connector",
    "the connector config contains no secret in plain text",
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
    "the environment file contains no secret in plain text",
    reason="the file is under version control",
)
def check_environment(lint_input: LintInput) -> Iterator[Finding]:
    for key in lint_input.plain_text_secrets:
        yield violation(f"{key} is in plain text", "an expression", f'set {key} to "{{{{ env.NAME }}}}"')


def plain_text_secrets(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys whose value is a secret in plain text. `data` is a file with unexpanded expressions."""
    return tuple(key for key, value in _leaves(data, "") if _is_plain_text_secret_in_file(key, value))


def _is_plain_text_secret_in_file(key: str, value: str) -> bool:
    if isinstance(value, LiteralText):  # the value of an OUTBOX__ variable, not of the file
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
