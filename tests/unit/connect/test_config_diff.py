"""The rendered config compared with the config that Connect returns: masks, fingerprints, descriptions."""

from __future__ import annotations

import pytest
from tests.unit.connect_samples import DESIRED, MOVED, RUNNING, written

from outbox_kit.connect.client import LiveConnector
from outbox_kit.connect.config_diff import (
    FINGERPRINT_KEY,
    OUTBOX_KIT_KEYS,
    PIPELINE_KEY,
    KeyChange,
    compare,
    different_keys,
    fingerprint,
    was_edited,
    with_fingerprint,
)
from outbox_kit.connect.state import ActualConnector, diff
from outbox_kit.pipeline import UNKNOWN
from outbox_kit.results.changes import Change

MASKS = ["****", "*", "••••••••", "[hidden]"]


@pytest.mark.parametrize(
    ("desired", "actual", "different"),
    [
        ({}, {}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1"}, {"a": "2"}, ["a"]),
        ({"a": "1"}, {}, ["a"]),
        ({}, {"a": "1"}, ["a"]),
        ({"b": "1", "a": "1"}, {"c": "1"}, ["a", "b", "c"]),
        # the worker adds the name
        ({"a": "1"}, {"a": "1", "name": "library-outbox"}, []),
        ({"a": "1", "name": "x"}, {"a": "1", "name": "y"}, []),
        # returned by some distributions instead of a password
        ({"database.password": "${env:X}"}, {"database.password": "****"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "••••••••"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "[hidden]"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "*"}, []),
        ({}, {"database.password": "****"}, ["database.password"]),
        ({"a": "${env:X}"}, {"a": "** not a mask"}, ["a"]),
        ({"a": "1"}, {"a": ""}, ["a"]),
        # unknown before apply
        ({"id": UNKNOWN}, {"id": "12"}, []),
        ({"id": UNKNOWN}, {}, []),
        ({"id": "13"}, {"id": "12"}, ["id"]),
    ],
)
def test_reports_different_keys(desired: dict[str, str], actual: dict[str, str], different: list[str]) -> None:
    assert different_keys(desired, actual) == different


def test_accepts_numbers_written_by_other_tools() -> None:
    live: dict[str, object] = {"tasks.max": 1, "errors.log.enable": True, "gone": None}
    assert different_keys({"tasks.max": "1", "errors.log.enable": "true"}, live) == []  # type: ignore[arg-type]


# --- the fingerprint


def test_fingerprint_covers_the_rendered_config() -> None:
    config = {"b": "1", "a": "2"}
    assert len(fingerprint(config)) == 64
    same = [{"a": "2", "b": "1"}, {**config, "name": "c"}, with_fingerprint("library", config)]
    assert {fingerprint(actual) for actual in same} == {fingerprint(config)}
    others = [{"a": "2"}, {"a": "1", "b": "2"}, {**config, "c": ""}]
    assert fingerprint(config) not in {fingerprint(actual) for actual in others}


def test_adds_the_keys_of_outbox_kit() -> None:
    config = with_fingerprint("library", DESIRED)
    assert config == {**DESIRED, PIPELINE_KEY: "library", FINGERPRINT_KEY: fingerprint(DESIRED)}
    assert list(config) == sorted(config)
    assert with_fingerprint("library", config) == config


def test_unknown_values_have_no_fingerprint() -> None:
    config = with_fingerprint("library", {"id": UNKNOWN})
    assert config[FINGERPRINT_KEY] == UNKNOWN
    assert compare(config, written({"id": "7"})) == []


# --- masked values: unchanged, changed, unknown


@pytest.mark.parametrize("mask", MASKS)
def test_masked_value_with_equal_fingerprint_is_unchanged(mask: str) -> None:
    live = {**written(DESIRED), "database.password": mask}
    assert compare(written(DESIRED), live) == []
    assert diff("c", written(DESIRED), ActualConnector(live, RUNNING, MOVED)) == []


@pytest.mark.parametrize("mask", MASKS)
def test_masked_value_with_different_fingerprint_is_unknown(mask: str) -> None:
    """A change of the masked value could not be detected, so the config is written."""
    live = {**written({**DESIRED, "database.password": "${env:OLD}"}), "database.password": mask}
    (change,) = diff("c", written(DESIRED), ActualConnector(live, RUNNING, MOVED))
    assert (change.action, change.after) == ("update", "unknown: database.password is masked")


def test_masked_value_next_to_a_visible_change() -> None:
    live = {**written({**DESIRED, "max.batch.size": "1"}), "database.password": "****"}
    (change,) = diff("c", written({**DESIRED, "max.batch.size": "2"}), ActualConnector(live, RUNNING, MOVED))
    assert change.after == "unknown: database.password is masked; max.batch.size: 1 → 2"


def test_masked_value_without_fingerprint_is_unknown_and_unchanged() -> None:
    live = {**DESIRED, "database.password": "****"}
    assert [change.is_unknown for change in compare(DESIRED, live)] == [True]
    assert different_keys(DESIRED, live) == []
    assert diff("c", DESIRED, ActualConnector(live, RUNNING, MOVED)) == []


# --- changes outside outbox-kit


def only(live: dict[str, str]) -> Change:
    (change,) = diff("c", written(DESIRED), ActualConnector(live, RUNNING, MOVED))
    return change


def test_shows_a_connector_not_written_by_outbox_kit() -> None:
    change = only(DESIRED)
    assert change.reason.startswith("the live config has no fingerprint")
    assert change.after == "outboxkit.pipeline: (absent) → library"


@pytest.mark.parametrize("key", sorted(OUTBOX_KIT_KEYS))
def test_shows_a_removed_key_of_outbox_kit(key: str) -> None:
    change = only({name: value for name, value in written(DESIRED).items() if name != key})
    assert f"{key}: (absent) → " in change.after


@pytest.mark.parametrize(
    "live",
    [
        {**written(DESIRED), "max.batch.size": "7"},
        {**written(DESIRED), "max.batch.size": "7", "database.password": "****"},
        {key: value for key, value in written(DESIRED).items() if key != "transforms.outbox.type"},
    ],
    ids=["added", "added, with a mask", "removed"],
)
def test_shows_a_change_made_outside_outbox_kit(live: dict[str, str]) -> None:
    assert only(live).reason.startswith("the live config was changed outside outbox-kit")


def test_change_by_outbox_kit_is_not_an_outside_edit() -> None:
    live = written({**DESIRED, "max.batch.size": "1"})
    assert not was_edited(live)
    assert only(live).reason == "the update restarts the task"


def test_shows_an_edited_fingerprint() -> None:
    live = {**written(DESIRED), FINGERPRINT_KEY: "0" * 64}
    assert only(live).after == f"{FINGERPRINT_KEY}: {'0' * 12}… → {fingerprint(DESIRED)[:12]}…"


# --- text


@pytest.mark.parametrize(
    ("key", "before", "after", "text"),
    [
        ("max.batch.size", "1", "2", "max.batch.size: 1 → 2"),
        ("a", None, "2", "a: (absent) → 2"),
        ("a", "1", None, "a: 1 → (absent)"),
        ("a", "x" * 200, "y", f"a: {'x' * 60}… → y"),
        ("key.converter", "x.Y", "x.Z", "key.converter: x.Y → x.Z"),
        ("transforms.outbox.table.field.event.key", "a", "b", "transforms.outbox.table.field.event.key: a → b"),
        ("transforms.outbox.aggregate.book.schema.2", '{"type":1}', '{"type":2}', "{key}: schema changed"),
        ("transforms.outbox.aggregate.book.schema.3", None, '{"type":2}', "{key}: schema added"),
        ("transforms.outbox.aggregate.book.schema.1", '{"type":2}', None, "{key}: schema removed"),
        ("transforms.outbox.aggregate.book.schema.1.id", "7", "8", "{key}: 7 → 8"),
        ("database.password", "s3cret", "${env:X}", "database.password: changed (not shown)"),
        ("database.password", None, "s3cret", "database.password: added (not shown)"),
        ("producer.override.sasl.jaas.config", "s3cret", None, "{key}: removed (not shown)"),
        ("value.converter.basic.auth.user.info", "me:s3cret", "x", "{key}: changed (not shown)"),
        ("producer.override.ssl.keystore.key", "s3cret", "x", "{key}: changed (not shown)"),
        ("some.url", "http://me:s3cret@host/", "http://host/", "some.url: changed (not shown)"),
        ("some.jdbc", "jdbc:x?user=a&password=s3cret", "jdbc:x", "some.jdbc: changed (not shown)"),
        ("database.password", "****", "${env:X}", "unknown: database.password is masked"),
    ],
)
def test_describes_differences(key: str, before: str | None, after: str | None, text: str) -> None:
    actual = KeyChange(key, before, after).text
    assert actual == text.replace("{key}", key)
    assert "s3cret" not in actual


def test_changes_show_no_secret() -> None:
    old, new = ({**DESIRED, "database.password": value} for value in ("hunter2", "s3cret"))
    changes = diff(
        "c", written(new), ActualConnector(written(old), RUNNING, MOVED, {"other": LiveConnector(old, None)})
    )
    assert "database.password" in changes[0].after
    assert "hunter2" not in repr(changes)
    assert "s3cret" not in repr(changes)
