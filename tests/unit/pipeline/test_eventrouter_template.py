"""The template outbox-postgres-eventrouter, which differs from outbox-postgres in routing."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Lock, Pipeline, render_connector


def render(pipeline: Pipeline, environment: Environment, lock: Lock, repository: Path, template: str) -> dict[str, str]:
    connector = pipeline.connector.model_copy(update={"template": template})
    changed = pipeline.model_copy(update={"connector": connector})
    return render_connector(changed, environment, lock, repository / "connectors" / "templates")


def test_equals_outbox_postgres_except_for_routing(
    library: Pipeline, environment: Environment, lock: Lock, repository: Path
) -> None:
    configs = [
        render(library, environment, lock, repository, name)
        for name in ("outbox-postgres", "outbox-postgres-eventrouter")
    ]
    shared = [
        {key: value for key, value in config.items() if not key.startswith(("transforms.", "value.converter"))}
        for config in configs
    ]
    assert shared[0] == shared[1]
    assert len(shared[0]) > 30


def test_uses_column_names_of_the_pipeline(
    library: Pipeline, environment: Environment, lock: Lock, repository: Path
) -> None:
    columns = library.source.columns.model_copy(update={"id": "event", "aggregate_type": "kind", "created_at": "at"})
    source = library.source.model_copy(update={"columns": columns})
    config = render(
        library.model_copy(update={"source": source}), environment, lock, repository, "outbox-postgres-eventrouter"
    )
    router = "transforms.outbox."
    assert config[router + "table.fields.additional.placement"] == (
        "event:header:event_id,event_type:header:event_type,kind:header:aggregate_type,at:header:event_time"
    )
    assert config[router + "route.by.field"] == "kind"
    assert config[router + "route.topic.replacement"] == "library.${routedByValue}"


def test_rejects_a_partition_field(library: Pipeline, environment: Environment, lock: Lock, repository: Path) -> None:
    """EventRouter would ignore the field, and write records and tombstones to different partitions."""
    book = library.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    pipeline = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    with pytest.raises(ConfigurationError, match="EventRouter does not support partition_field"):
        render(pipeline, environment, lock, repository, "outbox-postgres-eventrouter")
