"""The transforms other than OutboxRouter, in the stack's worker. Each is in a template and discoverable."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import requests
from tests.conftest import REPOSITORY
from tests.integration.outbox_rows import RUNNING, connector_state, insert
from tests.integration.support import Deploy, decode, headers, records, wait_record
from tests.integration.transforms.test_records import book, murmur2_partition

from outbox_events.sending.values import to_json
from outbox_kit.connect.connector_config import transforms
from outbox_kit.pipeline import load_files, render_connector
from outbox_kit.stack import Stack, StackState
from outbox_kit.stack.layout import Layout

# --- SetPartition after Debezium's EventRouter

PLACED = """\
{%- extends "outbox-postgres-eventrouter.json.j2" -%}
{%- block transforms %}
  {{- super() }},
  "predicates": "isEvent",
  "predicates.isEvent.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
  "predicates.isEvent.pattern": "placed\\\\.(book|author)",
  "transforms": "outbox,partition",
  "transforms.partition.type": "io.outboxkit.smt.SetPartition",
  "transforms.partition.predicate": "isEvent",
  "transforms.partition.field": "key",
  "transforms.partition.topic.partitions": "placed.book:4,placed.author:2"
{%- endblock %}
"""


def test_set_partition_works_after_event_router(deploy: Deploy, project: Path, source_dsn: str) -> None:
    """A key has the default partitioner's partition, or one of the first half if only these partitions are configured.

    Tombstones have the partition of the states that they delete.
    """
    (project / "connectors" / "templates" / "eventrouter-placed.json.j2").write_text(PLACED)
    deployment = deploy("placed", connector={"name": "placed", "template": "eventrouter-placed"})
    keys = [str(uuid4()) for _ in range(24)]
    statement = "insert into public.placed_event (aggregate_type, aggregate_id, event_type, payload)"
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for kind in ("book", "author"):
            for payload in ("{}", None):
                rows = "select %s, key, 'Changed', %s::jsonb from unnest(%s::text[]) as key"
                connection.execute(f"{statement} {rows}", (kind, payload, keys))
            wait_record(deployment, f"placed.{kind}", 4, insert(source_dsn, "public.placed_event", kind, keys[0], None))
    for kind, count in (("book", 4), ("author", 2)):
        actual = records(deployment, f"placed.{kind}", 4)
        placed = {(message.key(), message.partition(), message.value() is None) for message in actual}
        expected = {(key.encode(), murmur2_partition(key.encode(), count)) for key in keys}
        assert placed == {(key, partition, removed) for key, partition in expected for removed in (False, True)}
    # At least one key must be in the second half, otherwise the test would not distinguish the configurations.
    assert any(murmur2_partition(key.encode(), 4) > 1 for key in keys)
    assert connector_state(deployment) == RUNNING


# --- the chain


def test_chain_supports_header_columns_and_tombstone_event_types(deploy: Deploy, source_dsn: str) -> None:
    table = "public.chainmore_event"
    source = {"table": table, "publication": "chainmore_p", "slot": "chainmore_s"}
    source |= {"header_columns": {"tenant": "x-tenant"}}
    aggregates = {"book": {"schema": "schemas/book.avsc", "tombstone_event_types": ["BookRemoved"]}}
    connector = {"name": "chainmore", "template": "outbox-postgres-chain"}
    deployment = deploy("chainmore", source=source, aggregates=aggregates, connector=connector)
    key = str(uuid4())
    first_event = insert(source_dsn, table, "book", key, to_json(book(key)), tenant="north")
    removed = insert(source_dsn, table, "book", key, '{"fits": "nothing"}', event_type="BookRemoved")
    last_event = insert(source_dsn, table, "book", key, to_json(book(key)), event_type="BookAdded")
    first, second, third = (
        wait_record(deployment, "chainmore.book", 1, event) for event in (first_event, removed, last_event)
    )
    assert headers(first)["x-tenant"] == "north"
    assert str(decode(deployment, "book", first)["id"]) == key
    assert second.value() is None
    assert second.key() == first.key()
    assert third.value() is not None
    assert connector_state(deployment) == RUNNING


# --- every transform in every template

PACKAGE = "io.outboxkit.smt."
TEMPLATES = {
    # for each template, outbox-kit's transforms in it and the test module that runs it
    "outbox-postgres": (["OutboxRouter"], "test_records.py"),
    "outbox-postgres-messages": (["OutboxRouter"], "test_messages.py"),
    "outbox-postgres-chain": (["RouteByField", "SetPartition", "SetTombstone", "ParsePayload"], "test_chain.py"),
    "outbox-postgres-eventrouter": ([], "test_eventrouter.py"),
}


def test_every_transform_is_in_a_tested_template(project: Path, stack: Stack) -> None:
    """Compare the table with the rendered templates."""
    del stack  # must be running: the local environment has its addresses
    folder = project / "connectors"
    pipeline, environment = load_files(folder / "library.yaml", "local")
    template_names = {path.name.removesuffix(".json.j2") for path in (folder / "templates").glob("outbox-*.json.j2")}
    assert template_names == TEMPLATES.keys()
    used: set[str] = set()
    for template, (expected, module) in TEMPLATES.items():
        prefix = "outbox" if template.endswith("messages") else None
        changed = pipeline.model_copy(
            update={
                "connector": pipeline.connector.model_copy(update={"template": template}),
                "source": pipeline.source.model_copy(update={"message_prefix": prefix}),
            }
        )
        config = render_connector(changed, environment, None, folder / "templates")
        actual = [step.class_name for step in transforms(config) if step.class_name.startswith(PACKAGE)]
        assert list(dict.fromkeys(actual)) == [f"{PACKAGE}{name}" for name in expected]
        text = (Path(__file__).parent / module).read_text(encoding="utf-8")
        assert template == "outbox-postgres" or f'"{template}"' in text
        used |= set(actual)
    assert used == set(declared())


def declared() -> list[str]:
    """Return the transforms in the service manifest of outbox-kit's jar."""
    (jar,) = (REPOSITORY / "smt" / "target" / "plugin" / "outbox-smt").glob("outbox-smt-*.jar")
    with zipfile.ZipFile(jar) as opened:
        text = opened.read("META-INF/services/org.apache.kafka.connect.transforms.Transformation").decode()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@dataclass(frozen=True)
class Plugin:
    """Return the worker's description of a plugin."""

    kind: str
    version: str


def test_lists_our_transforms_with_manifest_discovery(project: Path, stack: Stack, state: StackState) -> None:
    """The stack's worker has plugin.discovery=service_load, with which it does not scan classes."""
    del stack
    settings = (Layout(project).configuration / "connect.properties").read_text(encoding="utf-8")
    assert re.search(r"^plugin\.discovery ?= ?service_load$", settings, re.MULTILINE)
    listing = requests.get(f"{state.connect}/connector-plugins", params={"connectorsOnly": "false"}, timeout=30)
    listing.raise_for_status()
    actual = {entry["class"]: Plugin(entry["type"], entry.get("version", "")) for entry in listing.json()}
    version = re.search(r"<version>([^<]+)</version>", (Path(__file__).parents[3] / "smt" / "pom.xml").read_text())
    assert version is not None
    names = declared()
    assert len(names) == len(set(names)) >= 5
    assert {name: actual.get(name) for name in names} == dict.fromkeys(names, Plugin("transformation", version[1]))
