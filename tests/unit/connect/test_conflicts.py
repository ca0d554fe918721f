"""Conflicts with other connectors of the cluster."""

from __future__ import annotations

import pytest
from tests.unit.connect_samples import DESIRED, MOVED, PLUGIN, RUNNING, written

from outbox_events.errors import RefusedError
from outbox_kit.connect.client import LiveConnector
from outbox_kit.connect.conflicts import duplicates, orphans, refuse_duplicates, shared_topics
from outbox_kit.connect.connector_config import EVENT_ROUTER, ROUTER
from outbox_kit.connect.state import ActualConnector, diff

OUR_CONFIG = {
    "connector.class": PLUGIN,
    "database.hostname": "db",
    "database.port": "5432",
    "database.dbname": "library",
    "slot.name": "s",
    "publication.name": "p",
    "topic.prefix": "library",
}
UNIQUE_NAMES = {"slot.name": "other", "publication.name": "other", "topic.prefix": "other"}
MYSQL = {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.hostname": "db"}
DEFAULT = {"connector.class": PLUGIN, "database.hostname": "db", "database.dbname": "library", "topic.prefix": "x"}


@pytest.mark.parametrize(
    ("ours", "other", "keys"),
    [
        ({}, {}, ["slot.name", "publication.name", "topic.prefix"]),
        ({}, UNIQUE_NAMES, []),
        ({}, {**UNIQUE_NAMES, "slot.name": "s"}, ["slot.name"]),
        ({}, {**UNIQUE_NAMES, "publication.name": "p"}, ["publication.name"]),
        ({}, {**UNIQUE_NAMES, "topic.prefix": "library"}, ["topic.prefix"]),
        # a slot belongs to a server, and a publication to a database
        ({}, {**UNIQUE_NAMES, "slot.name": "s", "database.dbname": "other"}, ["slot.name"]),
        ({}, {**UNIQUE_NAMES, "publication.name": "p", "database.dbname": "other"}, []),
        ({}, {**UNIQUE_NAMES, "slot.name": "s", "publication.name": "p", "database.hostname": "elsewhere"}, []),
        ({}, {**UNIQUE_NAMES, "slot.name": "s", "publication.name": "p", "database.port": "5433"}, []),
        ({}, {**UNIQUE_NAMES, "topic.prefix": "library", "database.hostname": "elsewhere"}, ["topic.prefix"]),
    ],
)
def test_detects_duplicates(ours: dict[str, str], other: dict[str, str], keys: list[str]) -> None:
    live = {"other": LiveConnector({**OUR_CONFIG, **other}, RUNNING)}
    assert [actual.key for actual in duplicates("c", {**OUR_CONFIG, **ours}, live)] == keys


def test_considers_defaults_of_debezium() -> None:
    actual = duplicates("c", DEFAULT, {"other": LiveConnector({**DEFAULT, "topic.prefix": "y"}, None)})
    assert [(entry.key, entry.value) for entry in actual] == [
        ("slot.name", "debezium"),
        ("publication.name", "dbz_publication"),
    ]
    assert (
        duplicates("c", DEFAULT, {"other": LiveConnector({**DEFAULT, "database.port": "1", **UNIQUE_NAMES}, None)})
        == []
    )


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}, []),
        ({}, []),
        ({**MYSQL, "topic.prefix": "library"}, ["topic.prefix"]),
        ({**MYSQL, "slot.name": "s"}, []),
    ],
)
def test_ignores_other_kinds_of_connectors(config: dict[str, str], keys: list[str]) -> None:
    assert [actual.key for actual in duplicates("c", OUR_CONFIG, {"other": LiveConnector(config, None)})] == keys


@pytest.mark.parametrize(
    ("other", "topics"),
    [
        (UNIQUE_NAMES, ["library.book"]),
        ({**UNIQUE_NAMES, "transforms.o.aggregate.book.topic": "staging.book"}, []),
        ({**UNIQUE_NAMES, "transforms": ""}, []),
        (
            {
                **UNIQUE_NAMES,
                "transforms.o.type": EVENT_ROUTER,
                "transforms.o.route.topic.replacement": "library.${routedByValue}",
            },
            ["library.book"],
        ),
    ],
)
def test_detects_another_connector_that_writes_to_a_topic(other: dict[str, str], topics: list[str]) -> None:
    """A copy of the connector for another database has its own slot and prefix, but often has the same routes."""
    router = {"type": ROUTER, "aggregates": "book", "aggregate.book.topic": "library.book"}
    config = {**OUR_CONFIG, "transforms": "o", **{f"transforms.o.{key}": value for key, value in router.items()}}
    live = {"other": LiveConnector({**config, **other}, RUNNING)}
    assert [(entry.value, entry.other_connector) for entry in shared_topics("c", config, live)] == [
        (topic, "other") for topic in topics
    ]


def test_rejects_a_duplicate_and_names_it() -> None:
    others = {
        "b": LiveConnector({**OUR_CONFIG, **UNIQUE_NAMES, "slot.name": "s"}, None),
        "a": LiveConnector(OUR_CONFIG, None),
    }
    with pytest.raises(RefusedError) as caught:
        refuse_duplicates("c", OUR_CONFIG, others)
    assert caught.value.message == (
        "connector 'c': slot.name 's' is also used by connector 'a'; "
        "publication.name 'p' is also used by connector 'a'; "
        "topic.prefix 'library' is also used by connector 'a'; slot.name 's' is also used by connector 'b'"
    )
    assert "delete the other connector" in caught.value.hint
    assert "`outbox adopt a`" in caught.value.hint
    refuse_duplicates(
        "c",
        OUR_CONFIG,
        {"c": LiveConnector(OUR_CONFIG, None), "d": LiveConnector({**OUR_CONFIG, **UNIQUE_NAMES}, None)},
    )


@pytest.mark.parametrize(
    "other",
    [
        {**written(OUR_CONFIG), "outboxkit.pipeline": "orders"},
        {**OUR_CONFIG, **UNIQUE_NAMES, "topic.prefix": "library"},
    ],
    ids=["another pipeline's", "another slot"],
)
def test_offers_takeover_only_for_a_foreign_slot(other: dict[str, str]) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_duplicates("c", written(OUR_CONFIG), {"other": LiveConnector(other, None)})
    assert "adopt" not in caught.value.hint


# --- connectors under an earlier name


@pytest.mark.parametrize(
    ("config", "is_orphan"),
    [
        (written(OUR_CONFIG), True),
        (written({**OUR_CONFIG, "slot.name": "new"}), True),
        (written({**OUR_CONFIG, "topic.prefix": "new"}), True),
        # the same pipeline in another environment, through the same Connect cluster
        (written({**OUR_CONFIG, "topic.prefix": "test", "database.hostname": "test-db"}), False),
        ({**written(OUR_CONFIG), "outboxkit.pipeline": "orders"}, False),
        (OUR_CONFIG, False),
    ],
    ids=["renamed", "with a new slot", "with a new prefix", "another environment", "another pipeline", "not the kit's"],
)
def test_detects_orphans(config: dict[str, str], is_orphan: bool) -> None:
    others = {"old": LiveConnector(config, None), "c": LiveConnector(written(OUR_CONFIG), None)}
    assert orphans("c", written(OUR_CONFIG), others) == (["old"] if is_orphan else [])


def test_ignores_connectors_without_the_marker_of_outbox_kit() -> None:
    assert (
        orphans(
            "c", OUR_CONFIG, {"old": LiveConnector(OUR_CONFIG, None), "older": LiveConnector(written(OUR_CONFIG), None)}
        )
        == []
    )


@pytest.mark.parametrize("config", [None, written(OUR_CONFIG)], ids=["new connector does not exist", "both exist"])
def test_removes_orphans_first(config: dict[str, str] | None) -> None:
    """The new connector uses the slot of the orphan."""
    others = {"old": LiveConnector(written(OUR_CONFIG), None)}
    changes = diff("c", written(OUR_CONFIG), ActualConnector(config, RUNNING if config else None, MOVED, others))
    assert (changes[0].object, changes[0].action) == ("connector old", "delete")
    assert "the offset of old is not used" in changes[0].danger
    assert [change.action for change in changes[1:]] == ([] if config else ["create"])
    refuse_duplicates("c", written(OUR_CONFIG), others)


def test_unrelated_connector_is_not_a_change() -> None:
    others = {"other": LiveConnector({**DESIRED, **UNIQUE_NAMES}, None)}
    assert diff("c", written(DESIRED), ActualConnector(written(DESIRED), RUNNING, MOVED, others)) == []
