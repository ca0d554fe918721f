"""Two connector configs side by side: as rendered from the files, and as Connect has it.

Some distributions answer a mask instead of the stored value of a password, even of a placeholder (Confluent's from
7.9.3 on). So every config that the kit writes carries its own fingerprint, and a masked value counts as unchanged where
the fingerprint is the rendered config's. Where it is not, the value is unknown, and is called so.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from outbox_kit.pipeline import UNKNOWN

PIPELINE_KEY = "outboxkit.pipeline"
FINGERPRINT_KEY = "outboxkit.fingerprint"
# Connect keeps keys that no plugin knows.
OWN_KEYS = frozenset({PIPELINE_KEY, FINGERPRINT_KEY})
# Added by the worker to what it was given.
SERVER_KEYS = frozenset({"name"})
MASK = re.compile(r"^(\*+|•+|\[hidden\])$")
SECRET_KEY = re.compile(
    r"passw|secret|token|credential|passphrase|jaas|user\.info|api[._-]?key|(private|access|account)[._-]?key|ssl\..*\.key$",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@|(password|secret|token)\s*=", re.IGNORECASE)
SCHEMA_KEY = re.compile(r"\.schema\.[^.]+$")
SHOWN_CHARACTERS = 60
SHOWN_FINGERPRINT = 12
ABSENT = "(absent)"


def fingerprint(config: dict[str, str]) -> str:
    """SHA-256 of a config without the kit's and the worker's own keys; UNKNOWN while part of it is not known."""
    content = {key: value for key, value in config.items() if key not in OWN_KEYS | SERVER_KEYS}
    if UNKNOWN in content.values():
        return UNKNOWN
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def with_fingerprint(pipeline_name: str, config: dict[str, str]) -> dict[str, str]:
    """`config` as it is written: marked as this pipeline's, and with its fingerprint."""
    return dict(sorted({**config, PIPELINE_KEY: pipeline_name, FINGERPRINT_KEY: fingerprint(config)}.items()))


def short_fingerprint(config: dict[str, str]) -> str:
    """As much of a config's fingerprint as a person needs to tell two apart."""
    return (config.get(FINGERPRINT_KEY) or fingerprint(config))[:SHOWN_FINGERPRINT]


@dataclass(frozen=True)
class KeyChange:
    """One key whose value differs, or may differ; None where there is no such key."""

    key: str
    before: str | None
    after: str | None

    @property
    def unknown(self) -> bool:
        """Whether the live value cannot be seen."""
        return self.after is not None and is_masked(self.before)

    @property
    def words(self) -> str:
        """Before and after for a person: never a secret, never a schema's text, long values shortened."""
        if self.unknown:
            return f"unknown: {self.key} is masked"
        if SECRET_KEY.search(self.key) or any(SECRET_VALUE.search(value or "") for value in (self.before, self.after)):
            return f"{self.key}: {self._verb} (not shown)"
        if SCHEMA_KEY.search(self.key):
            return f"{self.key}: schema {self._verb}"
        return f"{self.key}: {_short(self.before, self.key)} → {_short(self.after, self.key)}"

    @property
    def _verb(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def is_masked(value: str | None) -> bool:
    """Whether the worker answered something else than the stored value."""
    return value is not None and MASK.match(value) is not None


def different_keys(desired: dict[str, str], actual: dict[str, str]) -> list[str]:
    """Keys whose values differ for certain; a masked or not yet known value is no difference.

    The kit's own keys are looked at where `desired` has them.
    """
    return [change.key for change in compare(desired, actual) if not change.unknown]


def compare(desired: dict[str, str], actual: dict[str, str]) -> list[KeyChange]:
    """Every key that differs, sorted; also masked ones, unless the fingerprint says that they are the same."""
    live = {key: _text(value) for key, value in actual.items() if value is not None}
    same = FINGERPRINT_KEY in desired and live.get(FINGERPRINT_KEY) == desired[FINGERPRINT_KEY]
    ignored = SERVER_KEYS if FINGERPRINT_KEY in desired else SERVER_KEYS | OWN_KEYS
    changes = [KeyChange(key, live.get(key), desired.get(key)) for key in sorted((desired.keys() | live) - ignored)]
    return [
        change for change in changes if change.after not in (change.before, UNKNOWN) and not (change.unknown and same)
    ]


def was_edited(actual: dict[str, str]) -> bool:
    """Whether the live config is not what its own fingerprint says; cannot be told, so False, with masked values."""
    if FINGERPRINT_KEY not in actual or any(is_masked(_text(value)) for value in actual.values()):
        return False
    return fingerprint(actual) != actual[FINGERPRINT_KEY]


def _text(value: object) -> str:
    """Workers answer what they were given; a number or a truth value may come from somebody else's tool."""
    return value if isinstance(value, str) else json.dumps(value)


def _short(value: str | None, key: str) -> str:
    if value is None:
        return ABSENT
    longest = SHOWN_FINGERPRINT if key == FINGERPRINT_KEY else SHOWN_CHARACTERS
    return value if len(value) <= longest else f"{value[:longest]}…"
