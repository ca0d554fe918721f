"""Secrets: the only list of patterns in names and values of settings.

lint, plans, job files and Spark's redaction use the patterns, which are valid regular expressions of Python and Java.
"""

from __future__ import annotations

import re

NAME_PATTERN = (
    r"passw|passphrase|secret|token|credential|authorization|jaas|user\.?info|connection-string|oauthbearer\.config"
    r"|(access|account|api|private|sse|encryption|decryption)[._-]?key|(keystore|ssl)\.key(\.pem)?$"
    # Each header of an Iceberg REST catalog can contain credentials, except this one of Iceberg.
    r"|catalog\.(\w+\.)?header\.(?!x-iceberg-access-delegation$)"
)
VALUE_PATTERN = r"://[^/\s@:]*:[^/\s@]+@|(password|secret|token)\s*=\s*[\"']?[^\s\"';&]"
"""Pattern of a password in a URL, or in the options of a JDBC URL or a JAAS login module."""

_NAME = re.compile(NAME_PATTERN, re.IGNORECASE)
_VALUE = re.compile(VALUE_PATTERN, re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting may be a secret, according to its dotted name."""
    return _NAME.search(name) is not None


def has_secret(value: str) -> bool:
    """Return whether a value contains a secret in plain text, whatever its name is."""
    return _VALUE.search(value) is not None
