"""The other connectors of the cluster: who takes the same slot or prefix, and what a renaming left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outbox_kit.connect.client import LiveConnector
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.errors import RefusedError

POSTGRES = "io.debezium.connector.postgresql."
# Debezium's, for a config that does not name them.
DEFAULTS = {"slot.name": "debezium", "publication.name": "dbz_publication", "database.port": "5432"}

# Within what a value must be unique.
SCOPES: dict[str, tuple[str, ...]] = {
    "slot.name": ("database.hostname", "database.port"),
    "publication.name": ("database.hostname", "database.port", "database.dbname"),
    "topic.prefix": (),
}


@dataclass(frozen=True)
class Duplicate:
    """One value that must be this connector's own, and the connector that has it too."""

    key: str
    value: str
    other: str

    @property
    def words(self) -> str:
        return f"{self.key} {self.value!r} is also that of connector {self.other!r}"


def duplicates(name: str, config: dict[str, str], others: Mapping[str, LiveConnector]) -> list[Duplicate]:
    """What connector `name` shares with another one though nobody may: slot, publication, topic prefix.

    A slot is one server's and a publication one database's, so the same name elsewhere is none; a prefix is the
    cluster's. The pipeline's own connector under an earlier name is no other one.
    """
    left = orphans(name, config, others)
    found = []
    for other, live in sorted(others.items()):
        if other == name or other in left:
            continue
        for key, scope in SCOPES.items():
            mine = _scoped(config, key, scope)
            if mine and mine == _scoped(live.config, key, scope):
                found.append(Duplicate(key, mine[0], other))
    return found


def refuse_duplicates(name: str, config: dict[str, str], others: Mapping[str, LiveConnector]) -> None:
    """Two connectors on one slot or prefix mix or lose each other's rows. Raises RefusedError."""
    found = duplicates(name, config, others)
    if found:
        hint = "give each pipeline its own slot, publication and prefix, or delete the other connector"
        foreign = [
            entry.other
            for entry in found
            if entry.key == "slot.name" and PIPELINE_KEY not in others[entry.other].config
        ]
        if foreign:
            hint = f"to go on where it stands: `outbox adopt {foreign[0]}`; else {hint}"
        raise RefusedError(f"connector {name!r}: {'; '.join(entry.words for entry in found)}", hint)


def orphans(name: str, config: dict[str, str], others: Mapping[str, LiveConnector]) -> list[str]:
    """Connectors that the same pipeline made under another name; the kit's mark in `config` says which pipeline.

    The same pipeline may be deployed to a second environment through the same Connect cluster: only what reads the same
    slot or writes under the same prefix is left behind.
    """
    mark = config.get(PIPELINE_KEY)
    return sorted(
        other
        for other, live in others.items()
        if mark and other != name and live.config.get(PIPELINE_KEY) == mark and _same_source(config, live.config)
    )


def _same_source(config: dict[str, str], other: dict[str, str]) -> bool:
    pairs = [
        (_scoped(config, key, SCOPES[key]), _scoped(other, key, SCOPES[key])) for key in ("slot.name", "topic.prefix")
    ]
    return any(mine is not None and mine == theirs for mine, theirs in pairs)


def _scoped(config: dict[str, str], key: str, scope: tuple[str, ...]) -> tuple[str, ...] | None:
    """The value with its scope; None where the connector has no such thing."""
    postgres = config.get("connector.class", "").startswith(POSTGRES)
    known = {**DEFAULTS, **config} if postgres else config
    if key not in known or (scope and not postgres):
        return None
    return (known[key], *(known.get(part, "") for part in scope))
