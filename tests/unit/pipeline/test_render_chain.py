"""Templates other than outbox-postgres: settings that the guarantees require, and rejected options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Lock, Pipeline, render_connector
from outbox_kit.pipeline.model import Connector

CHAIN = "outbox-postgres-chain"
MESSAGES = "outbox-postgres-messages"


@pytest.fixture
def templates(repository: Path) -> Path:
    return repository / "connectors" / "templates"


def with_template(pipeline: Pipeline, template: str, **connector: object) -> Pipeline:
    """Return the pipeline with another template, and with the prefix that messages require."""
    changed = Connector.model_validate({**pipeline.connector.model_dump(), "template": template, **connector})
    prefix = "outbox" if template == MESSAGES else None
    source = pipeline.source.model_copy(update={"message_prefix": prefix})
    return pipeline.model_copy(update={"connector": changed, "source": source})


@pytest.mark.parametrize("template", [CHAIN, MESSAGES])
def test_keeps_the_settings_of_the_table_template(
    template: str, library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    """The guarantees require the same settings in every template."""
    table = render_connector(library, environment, lock, templates)
    config = render_connector(with_template(library, template), environment, lock, templates)
    template_specific = re.compile(r"transforms|predicates|(key|value)\.converter|message\.prefix|table\.include\.list")
    assert {key: value for key, value in config.items() if not template_specific.match(key)} == {
        key: value for key, value in table.items() if not template_specific.match(key)
    }


@pytest.mark.parametrize(
    ("template", "key", "value", "reason"),
    [
        (MESSAGES, "message.prefix.include.list", "outbox", "messages of the heartbeat are not captured"),
        (MESSAGES, "transforms.outbox.message.prefix", "outbox", "the router reads the same prefix"),
        (
            MESSAGES,
            "transforms.outbox.dead.letter.topic",
            "library.dead-letter",
            "invalid rows become dead letters",
        ),
        (CHAIN, "value.converter.apicurio.registry.auto-register", "false", "values have declared schemas only"),
        (
            CHAIN,
            "value.converter.apicurio.registry.artifact-resolver-strategy",
            "io.outboxkit.converter.DeclaredVersionStrategy",
            "the value is written with the version that the row declares",
        ),
        (CHAIN, "value.converter.connect.meta.data", "true", "contains the version"),
        (CHAIN, "value.converter.apicurio.registry.use-id", "contentId", "consumers look up the schema by this id"),
        (CHAIN, "key.converter.apicurio.registry.use-id", "contentId", "consumers look up the schema by this id"),
        (
            CHAIN,
            "value.converter.apicurio.registry.url",
            "http://registry.example.internal/apis/registry/v2",
            "the converter uses the API of Apicurio, not of Confluent",
        ),
        (CHAIN, "transforms.payload.aggregate.author.schema.versions", "2,1", "rows of version 1 may wait in the WAL"),
        (CHAIN, "transforms.heartbeat.predicate", "isHeartbeat", "a heartbeat has no declared schema"),
    ],
)
def test_template_specific_settings(
    library: Pipeline,
    environment: Environment,
    lock: Lock,
    templates: Path,
    template: str,
    key: str,
    value: str,
    reason: str,
) -> None:
    assert render_connector(with_template(library, template), environment, lock, templates)[key] == value, reason


def test_chain_uses_the_registry_address_of_the_worker(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    """In containers, outbox-kit and the worker use different addresses."""
    registry = environment.registry.model_copy(update={"connector_url": "http://registry:8080/apis/ccompat/v7"})
    in_containers = environment.model_copy(update={"registry": registry})
    config = render_connector(with_template(library, CHAIN), in_containers, lock, templates)
    urls = {value for key, value in config.items() if key.endswith("registry.url")}
    assert urls == {"http://registry:8080/apis/ccompat/v7".replace("ccompat/v7", "registry/v2")}


def test_chain_steps_have_declared_predicates(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    """A step without a predicate would process heartbeats, and the task would stop."""
    book = library.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    partitioned = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    config = render_connector(with_template(partitioned, CHAIN), environment, lock, templates)
    declared = config["predicates"].split(",")
    for step in config["transforms"].split(","):
        assert config[f"transforms.{step}.predicate"] in declared
    for predicate in declared:
        re.compile(config[f"predicates.{predicate}.pattern"])
    assert config["transforms.partition1.field"] == "value.tenant"
    assert re.fullmatch(config["predicates.isPlacedByField1.pattern"], "library.book")
    assert not re.fullmatch(config["predicates.isPlacedByKey.pattern"], "library.book")
    assert re.fullmatch(config["predicates.isPlacedByKey.pattern"], "library.author")
    assert not re.fullmatch(config["predicates.isRow.pattern"], "library.public_outbox_event")


def test_chain_rejects_transaction_metadata(library: Pipeline, environment: Environment, templates: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"chain .*connector\.transaction_metadata"):
        render_connector(with_template(library, CHAIN, transaction_metadata=True), environment, None, templates)


def test_chain_and_router_use_the_same_schemas(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    table = render_connector(library, environment, lock, templates)
    chain = render_connector(with_template(library, CHAIN), environment, lock, templates)
    for name in ("author.schema.1", "author.schema.2", "book.schema.1"):
        assert json.loads(chain[f"transforms.payload.aggregate.{name}"]) == json.loads(
            table[f"transforms.outbox.aggregate.{name}"]
        )


def test_the_sink_reads_the_topics_of_the_aggregates_only(
    library: Pipeline, environment: Environment, templates: Path
) -> None:
    """The topic of the canary has no table."""
    config = render_connector(with_template(library, "sink-jdbc"), environment, None, templates)
    assert set(config["topics"].split(",")) == {library.topic_of(name) for name in library.aggregates}
    assert library.routed.keys() > library.aggregates.keys()
