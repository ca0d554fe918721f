"""Templates other than outbox-postgres: settings required by the guarantees, and rejected options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Lock, Pipeline, render_connector
from outbox_kit.pipeline.model import Connector

CHAIN = "outbox-postgres-chain"
MESSAGES = "outbox-postgres-messages"


@pytest.fixture
def templates(repository: Path) -> Path:
    return repository / "connectors" / "templates"


def of(pipeline: Pipeline, template: str, **connector: object) -> Pipeline:
    """The pipeline with that template; for messages with a prefix."""
    changed = Connector.model_validate({**pipeline.connector.model_dump(), "template": template, **connector})
    prefix = "outbox" if template == MESSAGES else None
    source = pipeline.source.model_copy(update={"message_prefix": prefix})
    return pipeline.model_copy(update={"connector": changed, "source": source})


@pytest.mark.parametrize("template", [CHAIN, MESSAGES])
def test_keeps_the_settings_of_the_table_template(
    template: str, library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    """A setting changed in one template and forgotten in another would break the guarantees."""
    table = render_connector(library, environment, lock, templates)
    config = render_connector(of(library, template), environment, lock, templates)
    own = re.compile(r"transforms|predicates|(key|value)\.converter|message\.prefix|table\.include\.list")
    assert {key: value for key, value in config.items() if not own.match(key)} == {
        key: value for key, value in table.items() if not own.match(key)
    }


@pytest.mark.parametrize(
    ("template", "key", "value", "why"),
    [
        (MESSAGES, "message.prefix.include.list", "outbox", "the heartbeat's message makes no record"),
        (MESSAGES, "transforms.outbox.message.prefix", "outbox", "the router reads the same prefix"),
        (MESSAGES, "transforms.outbox.dead.letter.topic", "library.dead-letter", "nothing is dropped in silence"),
        (CHAIN, "value.converter.apicurio.registry.auto-register", "false", "values have declared schemas only"),
        (
            CHAIN,
            "value.converter.apicurio.registry.artifact-resolver-strategy",
            "io.outboxkit.converter.DeclaredVersionStrategy",
            "written by another version fields change places",
        ),
        (CHAIN, "value.converter.connect.meta.data", "true", "carries the version"),
        (CHAIN, "value.converter.apicurio.registry.use-id", "contentId", "the id that consumers can look up"),
        (CHAIN, "key.converter.apicurio.registry.use-id", "contentId", "the id that consumers can look up"),
        (
            CHAIN,
            "value.converter.apicurio.registry.url",
            "http://registry.example.internal/apis/registry/v2",
            "the converter does not speak the Confluent API",
        ),
        (CHAIN, "transforms.payload.aggregate.author.schema.versions", "2,1", "a backlog under version 1 survives"),
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
    why: str,
) -> None:
    assert render_connector(of(library, template), environment, lock, templates)[key] == value, why


def test_chain_uses_the_registry_address_of_the_worker(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    """In containers the tool and the worker reach it under two addresses."""
    registry = environment.registry.model_copy(update={"connector_url": "http://registry:8080/apis/ccompat/v7"})
    there = environment.model_copy(update={"registry": registry})
    config = render_connector(of(library, CHAIN), there, lock, templates)
    urls = {value for key, value in config.items() if key.endswith("registry.url")}
    assert urls == {"http://registry:8080/apis/ccompat/v7".replace("ccompat/v7", "registry/v2")}


def test_chain_steps_have_declared_predicates(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    """A step without one would process the heartbeats, and stop the task."""
    book = library.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    placed = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    config = render_connector(of(placed, CHAIN), environment, lock, templates)
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
    with pytest.raises(ConfigurationError, match=r"a chain has no connector\.transaction_metadata"):
        render_connector(of(library, CHAIN, transaction_metadata=True), environment, None, templates)


def test_chain_and_router_use_the_same_schemas(
    library: Pipeline, environment: Environment, lock: Lock, templates: Path
) -> None:
    table = render_connector(library, environment, lock, templates)
    chain = render_connector(of(library, CHAIN), environment, lock, templates)
    for name in ("author.schema.1", "author.schema.2", "book.schema.1"):
        assert json.loads(chain[f"transforms.payload.aggregate.{name}"]) == json.loads(
            table[f"transforms.outbox.aggregate.{name}"]
        )
