"""Schema ids in the states of the topics, and the schemas to which the registry resolves them.

If the registry was rebuilt, an id may belong to another schema. Readers then cannot decode states, or decode them
incorrectly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

from fastavro.schema import fullname

from outbox_events.text import plural
from outbox_kit.operations.state_comparison import StateComparison
from outbox_kit.pipeline.schema_references import inlined_schema


def wrong_ids(comparison: StateComparison, aggregate_types: Collection[str]) -> dict[str, list[str]]:
    """Return descriptions of the schema ids of states that are not those of a schema of the type, by aggregate type.

    Raises UnreachableError, RejectedError.
    """
    aggregates = comparison.deployment.pipeline.with_schemas
    found = {
        name: _wrong_ids(comparison, name, _record_name(inlined_schema(aggregates[name])))
        for name in aggregates
        if name in aggregate_types
    }
    return {name: texts for name, texts in found.items() if texts}


def _wrong_ids(comparison: StateComparison, aggregate_type: str, expected_name: str) -> list[str]:
    states = (record for record in comparison.topic(aggregate_type).by_key.values() if record.has_state)
    ids = Counter(record.schema_id for record in states)
    counts = {schema_id: count for schema_id, count in ids.items() if schema_id is not None}
    # A topic without any schema id has values of a converter with another format.
    unreadable_count = ids[None] if counts else 0
    problems = [f"{plural(unreadable_count, 'state')} of {aggregate_type} without a schema id"] * bool(unreadable_count)
    for schema_id, count in sorted(counts.items()):
        schema = comparison.deployment.registry.by_id(schema_id)
        name = _record_name(schema.text) if schema else ""
        if name != expected_name:
            actual = f"the schema of {name}" if schema else "not in the registry"
            problems.append(f"{plural(count, 'state')} of {aggregate_type} with id {schema_id}, which is {actual}")
    return problems


def _record_name(text: str) -> str:
    """Return the full name of the record of a schema; its JSON if it is not a named type."""
    schema = json.loads(text)
    return str(fullname(schema)) if isinstance(schema, dict) and "name" in schema else text
