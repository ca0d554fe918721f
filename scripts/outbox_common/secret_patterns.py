"""Detect secrets by patterns in the names and values of settings.

lint, plans, job files and Spark's redaction all use these patterns, so each pattern is valid in both Python and Java.
"""

from __future__ import annotations

import re

NAME_PATTERN = (
    r"passw|passphrase|secret|token|credential|authorization|jaas|user\.?info|connection-string|oauthbearer\.config"
    r"|(access|account|api|private|sse|encryption|decryption)[._-]?key|(keystore|ssl)\.key(\.pem)?$"
    # Every header of an Iceberg REST catalog can contain credentials, except this one.
    r"|catalog\.(\w+\.)?header\.(?!x-iceberg-access-delegation$)"
)
VALUE_PATTERN = r"://[^/\s@:]*:[^/\s@]+@|(password|secret|token)\s*=\s*[\"']?[^\s\"';&]"
"""Pattern that matches a password in a URL, in the options of a JDBC URL, or in the options of a JAAS login module."""

_NAME = re.compile(NAME_PATTERN, re.IGNORECASE)
_VALUE = re.compile(VALUE_PATTERN, re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting with this dotted name might be secret."""
    return _NAME.search(name) is not None


def has_secret(value: str) -> bool:
    """Return whether a value contains a plaintext secret, regardless of the name of the setting."""
    return _VALUE.search(value) is not None
