"""Compare the config rendered from the files with the config that Connect returns.

Some distributions (Confluent's since 7.9.3) return a mask instead of a password, even if the stored value is a
placeholder. Therefore outbox-kit adds a fingerprint to each config. If the fingerprint in the returned config equals
the one in the rendered config, masked values count as unchanged; otherwise they count as unknown.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from outbox_common.secret_patterns import has_secret, is_secret_name
from outbox_kit.pipeline import UNKNOWN

PIPELINE_KEY = "outboxkit.pipeline"
FINGERPRINT_KEY = "outboxkit.fingerprint"
# Keys that outbox-kit adds to the config. Connect stores them, although no plugin defines them.
OUTBOX_KIT_KEYS = frozenset({PIPELINE_KEY, FINGERPRINT_KEY})
# Keys that the Connect worker adds to the config.
WORKER_KEYS = frozenset({"name"})
MASK = re.compile(r"^(\*+|•+|\[hidden\])$")
SCHEMA_KEY = re.compile(r"\.schema\.[^.]+$")
MAX_SHOWN_CHARACTERS = 60
SHORT_FINGERPRINT_LENGTH = 12
ABSENT = "(absent)"


def fingerprint(config: dict[str, str]) -> str:
    """Return the SHA-256 of a config without OUTBOX_KIT_KEYS and WORKER_KEYS; UNKNOWN if a value is UNKNOWN."""
    content = {key: value for key, value in config.items() if key not in OUTBOX_KIT_KEYS | WORKER_KEYS}
    if UNKNOWN in content.values():
        return UNKNOWN
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def with_fingerprint(pipeline_name: str, config: dict[str, str]) -> dict[str, str]:
    """Return the config with two more keys: the pipeline's name and the fingerprint."""
    return dict(sorted({**config, PIPELINE_KEY: pipeline_name, FINGERPRINT_KEY: fingerprint(config)}.items()))


def short_fingerprint(config: dict[str, str]) -> str:
    """Return the first digits of the fingerprint in a config. If the config has none, compute the fingerprint."""
    return (config.get(FINGERPRINT_KEY) or fingerprint(config))[:SHORT_FINGERPRINT_LENGTH]


@dataclass(frozen=True)
class KeyChange:
    """Key whose value differs or may differ. `before` is the live value, `after` the desired one; None means absent."""

    key: str
    before: str | None
    after: str | None

    @property
    def is_unknown(self) -> bool:
        """Whether the live value is masked, so that it is unknown whether the value differs."""
        return self.after is not None and is_masked(self.before)

    @property
    def text(self) -> str:
        """Description of the change, without secrets and schemas, and with long values shortened."""
        if self.is_unknown:
            return f"unknown: {self.key} is masked"
        if is_secret_name(self.key) or any(has_secret(value or "") for value in (self.before, self.after)):
            return f"{self.key}: {self._verb} (not shown)"
        if SCHEMA_KEY.search(self.key):
            return f"{self.key}: schema {self._verb}"
        return f"{self.key}: {_shorten(self.before, self.key)} → {_shorten(self.after, self.key)}"

    @property
    def _verb(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def is_masked(value: str | None) -> bool:
    return value is not None and MASK.match(value) is not None


def different_keys(desired: dict[str, str], actual: dict[str, str]) -> list[str]:
    """Return the keys whose values differ. Masked live values and UNKNOWN desired values are not compared.

    OUTBOX_KIT_KEYS are compared if `desired` has them.
    """
    return [change.key for change in compare(desired, actual) if not change.is_unknown]


def compare(desired: dict[str, str], actual: dict[str, str]) -> list[KeyChange]:
    """Return the changes, sorted by key. A masked live value counts as a change unless the fingerprints are equal."""
    actual_values = {key: _to_text(value) for key, value in actual.items() if value is not None}
    same_fingerprint = FINGERPRINT_KEY in desired and actual_values.get(FINGERPRINT_KEY) == desired[FINGERPRINT_KEY]
    ignored = WORKER_KEYS if FINGERPRINT_KEY in desired else WORKER_KEYS | OUTBOX_KIT_KEYS
    keys = sorted((desired.keys() | actual_values) - ignored)
    changes = [KeyChange(key, actual_values.get(key), desired.get(key)) for key in keys]
    return [
        change
        for change in changes
        if change.after not in (change.before, UNKNOWN) and not (change.is_unknown and same_fingerprint)
    ]


def was_edited(actual: dict[str, str]) -> bool:
    """Return whether the live config was edited after its fingerprint was computed; False if this is unknown."""
    if FINGERPRINT_KEY not in actual or any(is_masked(_to_text(value)) for value in actual.values()):
        return False
    return fingerprint(actual) != actual[FINGERPRINT_KEY]


def _to_text(value: object) -> str:
    """Return a value as text. Clients other than outbox-kit may have written numbers or booleans."""
    return value if isinstance(value, str) else json.dumps(value)


def _shorten(value: str | None, key: str) -> str:
    if value is None:
        return ABSENT
    max_length = SHORT_FINGERPRINT_LENGTH if key == FINGERPRINT_KEY else MAX_SHOWN_CHARACTERS
    return value if len(value) <= max_length else f"{value[:max_length]}…"
