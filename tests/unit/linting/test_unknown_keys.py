"""Keys that no plugin of the worker defines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from tests.unit.linting.samples import CHAIN, ROUTER, configured, valid_input, with_transforms
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect.client import ConnectClient
from outbox_kit.linting import LintInput, lint
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule
from outbox_kit.pipeline import HttpService
from outbox_kit.results.checks import Check, Status

CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
BINARY = "io.debezium.converters.BinaryDataConverter"
DELEGATE = "value.converter.delegate.converter.type"
# tests/integration/deployment/test_lint.py uses a real worker.
DEFINED: dict[str, list[str]] = {
    CONNECTOR: [key for key in valid_input().config if not key.startswith(("transforms.", "value.converter."))],
    "io.outboxkit.smt.OutboxRouter": [
        key.removeprefix(ROUTER)
        for key in valid_input().config
        if key.startswith(ROUTER) and not key.startswith(f"{ROUTER}aggregate.") and key != f"{ROUTER}type"
    ],
    BINARY: ["converter.type", "delegate.converter.type"],
    "org.apache.kafka.connect.json.JsonConverter": ["schemas.enable", "converter.type"],
    "org.apache.kafka.connect.storage.StringConverter": ["converter.encoding", "converter.type"],
}


def unknown_keys(lint_input: LintInput) -> list[Check]:
    return [check for check in lint([lint_input], [unknown_keys_rule(DEFINED.get)]) if check.status is not Status.PASS]


def test_accepts_rendered_keys() -> None:
    assert unknown_keys(valid_input()) == []


@pytest.mark.parametrize(
    "key",
    [
        "producer.override.buffer.memory",
        "topic.creation.default.partitions",
        "topic.heartbeat.prefix",
        "driver.socketTimeout",
        "column.mask.with.10.chars",
        "outboxkit.fingerprint",
        "offset.mismatch.strategy",
        "value.converter.plugin.version",
        f"{ROUTER}plugin.version",
        f"{ROUTER}predicate",
        f"{ROUTER}aggregate.book.partition.field",
        f"{ROUTER}aggregate.book.schema.17.id",
    ],
)
def test_accepts_pass_through_keys(key: str) -> None:
    assert unknown_keys(configured(valid_input(), {key: "1"})) == []


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("heartbeat.interval", "heartbeat.interval.ms"),
        ("snapshot.mod", "snapshot.mode"),
        ("errors.tolerence", "errors.tolerance"),
        (f"{ROUTER}max.record.byte", f"{ROUTER}max.record.bytes"),
        (f"{DELEGATE}.schema.enable", f"{DELEGATE}.schemas.enable"),
        ("key.converter.encoding", "key.converter.converter.encoding"),
    ],
)
def test_reports_an_unknown_key_with_the_nearest_known_key(key: str, nearest: str) -> None:
    (check,) = unknown_keys(configured(valid_input(), {key: "1"}))
    assert check.id == "lint.unknown-keys"
    assert check.status is Status.FAIL
    assert check.seen.startswith(f"{key}: ")
    assert check.remedy == f"did you mean {nearest}?"


def test_accepts_keys_of_named_extensions() -> None:
    changes: dict[str, str | None] = {"converters": "iso", "iso.type": "x.Y", "iso.format": "z"}
    actual = unknown_keys(configured(valid_input(), changes))
    assert [check.seen.partition(":")[0] for check in actual] == ["converters"], "only for these definitions"


def test_reports_a_class_missing_on_the_worker() -> None:
    actual = unknown_keys(with_transforms(CHAIN))
    missing = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
    assert f"predicates.rows.{missing} is not installed" in [check.seen for check in actual]


def test_accepts_any_key_of_a_plugin_without_definitions() -> None:
    rule = unknown_keys_rule(lambda _: [])
    assert [check.status for check in lint([valid_input()], [rule])] == [Status.PASS]


def test_parses_the_response_of_a_worker(serve: Callable[[Script], ScriptedServer]) -> None:
    server = serve([(200, [{"name": "spec", "type": "STRING"}, {"name": "other"}]), (404, {"message": "none"})])
    with closing(ConnectClient(HttpService(url=server.url))) as client:
        assert client.plugin_config_keys("org.apache.kafka.connect.transforms.Cast$Key") == ["spec", "other"]
        assert client.plugin_config_keys("x.Y") is None
    assert [request.path for request in server.seen] == [
        "/connector-plugins/org.apache.kafka.connect.transforms.Cast%24Key/config",
        "/connector-plugins/x.Y/config",
    ]
