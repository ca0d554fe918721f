"""Find conflicts with other connectors: a shared slot, publication, prefix or topic, or a connector's earlier name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outbox_events.errors import RefusedError
from outbox_kit.connect.client import LiveConnector
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.connect.connector_config import routes

POSTGRES_CONNECTOR_PREFIX = "io.debezium.connector.postgresql."
# Debezium's defaults for keys that a config can omit.
DEBEZIUM_DEFAULTS = {"slot.name": "debezium", "publication.name": "dbz_publication", "database.port": "5432"}

# Keys whose value must be unique in a scope (server, database, Kafka cluster), and the keys that identify the scope.
SCOPES: dict[str, tuple[str, ...]] = {
    "slot.name": ("database.hostname", "database.port"),
    "publication.name": ("database.hostname", "database.port", "database.dbname"),
    "topic.prefix": (),
}


@dataclass(frozen=True)
class Duplicate:
    """A value that must be unique, and another connector that has the same value."""

    key: str
    value: str
    other_connector: str

    @property
    def text(self) -> str:
        return f"{self.key} {self.value!r} is also used by connector {self.other_connector!r}"


def duplicates(name: str, config: dict[str, str], other_connectors: Mapping[str, LiveConnector]) -> list[Duplicate]:
    """Return each slot, publication or topic prefix that connector `name` shares with another connector."""
    return [
        Duplicate(key, value[0], other_name)
        for other_name, connector in _foreign(name, config, other_connectors)
        for key in SCOPES
        if (value := _value_in_scope(config, key)) and value == _value_in_scope(connector.config, key)
    ]


def shared_topics(name: str, config: dict[str, str], other_connectors: Mapping[str, LiveConnector]) -> list[Duplicate]:
    """Return the topics to which both connector `name` and another connector, such as a copy of `name`, write."""
    own_routes = list(routes(config, ()))
    topics, aggregates = {route.topic for route in own_routes}, [route.aggregate for route in own_routes]
    return [
        Duplicate("topic", topic, other_name)
        for other_name, connector in _foreign(name, config, other_connectors)
        for topic in sorted(topics & {route.topic for route in routes(connector.config, aggregates)})
    ]


def _foreign(
    name: str, config: dict[str, str], other_connectors: Mapping[str, LiveConnector]
) -> list[tuple[str, LiveConnector]]:
    """Return the other connectors, without those that this pipeline created under an earlier name."""
    own_names = {name, *orphans(name, config, other_connectors)}
    return [entry for entry in sorted(other_connectors.items()) if entry[0] not in own_names]


def slots_of(connectors: Iterable[LiveConnector]) -> set[str]:
    """Return the slots of all PostgreSQL connectors. Servers are not compared, because one can have several names."""
    return {
        {**DEBEZIUM_DEFAULTS, **connector.config}["slot.name"]
        for connector in connectors
        if connector.config.get("connector.class", "").startswith(POSTGRES_CONNECTOR_PREFIX)
    }


def readers_of(table: str, database: str, connectors: Mapping[str, LiveConnector]) -> list[str]:
    """Return the connectors that read the table of a database of this name, on any server."""
    return sorted(
        name
        for name, connector in connectors.items()
        if connector.config.get("connector.class", "").startswith(POSTGRES_CONNECTOR_PREFIX)
        and connector.config.get("database.dbname") == database
        and any(_matches(item.strip(), table) for item in connector.config.get("table.include.list", "").split(","))
    )


def _matches(pattern: str, table: str) -> bool:
    """Return whether a pattern of Debezium matches the table. If Python cannot compile it, it may match."""
    try:
        return re.fullmatch(pattern, table, re.IGNORECASE) is not None
    except re.error:
        return True


def refuse_duplicates(name: str, config: dict[str, str], other_connectors: Mapping[str, LiveConnector]) -> None:
    """Raise RefusedError if another connector has the same slot, publication, prefix or topic.

    Otherwise, rows would be mixed or lost.
    """
    shared_values = duplicates(name, config, other_connectors) or shared_topics(name, config, other_connectors)
    if not shared_values:
        return
    names = dict.fromkeys("prefix" if entry.key == "topic" else entry.key for entry in shared_values)
    hint = f"set another {' and '.join(names)} in the pipeline file, or delete the other connector"
    slot_users = [duplicate.other_connector for duplicate in shared_values if duplicate.key == "slot.name"]
    foreign = next((user for user in slot_users if PIPELINE_KEY not in other_connectors[user].config), None)
    if foreign:
        hint = f"run `outbox adopt {foreign}` to take over the slot and offset of {foreign!r}; otherwise {hint}"
    raise RefusedError(f"connector {name!r}: {'; '.join(duplicate.text for duplicate in shared_values)}", hint)


def orphans(name: str, config: dict[str, str], other_connectors: Mapping[str, LiveConnector]) -> list[str]:
    """Return the names of connectors that the same pipeline created under another name.

    Only connectors with the same slot or prefix are returned, because a second environment of the pipeline may use the
    same Connect cluster.
    """
    pipeline = config.get(PIPELINE_KEY)
    scoped_values = [(key, _value_in_scope(config, key)) for key in ("slot.name", "topic.prefix")]
    return sorted(
        other_name
        for other_name, connector in other_connectors.items()
        if pipeline
        and other_name != name
        and connector.config.get(PIPELINE_KEY) == pipeline
        and any(value and value == _value_in_scope(connector.config, key) for key, value in scoped_values)
    )


def _value_in_scope(config: dict[str, str], key: str) -> tuple[str, ...] | None:
    """Return the key's value, followed by the values that identify its scope; None if the connector lacks the key."""
    is_postgres = config.get("connector.class", "").startswith(POSTGRES_CONNECTOR_PREFIX)
    settings = {**DEBEZIUM_DEFAULTS, **config} if is_postgres else config
    if key not in settings or (SCOPES[key] and not is_postgres):
        return None
    return (settings[key], *(settings.get(scope_key, "") for scope_key in SCOPES[key]))
