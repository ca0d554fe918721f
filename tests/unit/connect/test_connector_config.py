"""Routes of records, derived from the transforms of each template."""

from __future__ import annotations

import pytest
from tests.unit.linting.samples import BY_FIELD, CHAIN, EVENT_ROUTER, failed_checks, valid_input, with_transforms

from outbox_kit.connect.connector_config import Route, outbox_router, parse_int, schema_versions
from outbox_kit.pipeline import UNKNOWN

TOPICS = {name: f"library.{name}" for name in ("author", "book", "outbox-canary")}


def topics(routes: list[Route]) -> dict[str, str]:
    return {route.aggregate: route.topic for route in routes}


def test_outbox_router() -> None:
    actual = valid_input().routes
    assert topics(actual) == TOPICS
    assert {route.aggregate: route.partitions for route in actual} == {"author": "4", "book": "4", "outbox-canary": "1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, TOPICS),
        ({"route.topic.replacement": "all"}, dict.fromkeys(TOPICS, "all")),
        # default of EventRouter
        ({"route.topic.replacement": ""}, {name: f"outbox.event.{name}" for name in TOPICS}),
        ({"route.topic.regex": "(?<x>.)(.*)", "route.topic.replacement": "$2-${x}"}, {"author": "uthor-a"}),
        # a topic that does not match is not renamed
        ({"route.topic.regex": "b.*", "route.topic.replacement": "x"}, {"author": "author", "book": "x"}),
        # a Java expression that Python cannot parse has no result
        ({"route.topic.regex": "\\p{Alpha}+"}, {}),
        ({"route.topic.replacement": "$9"}, {}),
    ],
)
def test_event_router(settings: dict[str, str], expected: dict[str, str]) -> None:
    settings = {f"transforms.outbox.{key}": value for key, value in settings.items()}
    merged = {key: value for key, value in {**EVENT_ROUTER, **settings}.items() if value}
    actual = topics(with_transforms(merged).routes)
    assert {name: topic for name, topic in actual.items() if name in expected or not expected} == expected


@pytest.mark.parametrize(
    ("regex", "replacement", "expected"),
    [
        (r"library\.public\.(.*)_event", "library.$1", ["library.outbox"]),
        (".*", "one.topic", ["one.topic"]),
        ("other", "one.topic", ["library.public.outbox_event"]),
        (r"\p{Alpha}(.*)", "one.topic", ["one.topic"]),
        (r"\p{Alpha}(.*)", "x.$1", []),
    ],
)
def test_regex_router(regex: str, replacement: str, expected: list[str]) -> None:
    chain = {**CHAIN, "transforms.topic.regex": regex, "transforms.topic.replacement": replacement}
    assert [route.topic for route in with_transforms(chain).routes] == expected


def test_returns_nothing_without_a_router() -> None:
    chain = {**CHAIN, "transforms": "unwrap,key"}
    assert with_transforms({key: value for key, value in chain.items() if ".topic." not in key}).routes == []


def test_route_by_field() -> None:
    actual = with_transforms(BY_FIELD).routes
    assert topics(actual) == TOPICS
    assert {route.aggregate: (route.partitions, route.partition_field) for route in actual} == {
        "author": ("4", None),
        "book": ("4", None),
        "outbox-canary": ("1", None),
    }
    assert failed_checks(with_transforms(BY_FIELD)) == []


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("transforms.route.topics", "author:library.author,book:library.book", "lint.route.aggregates"),
        (
            "transforms.route.topics",
            "author:library.author,book:library.books,outbox-canary:library.outbox-canary",
            "lint.route.declared",
        ),
        (
            "transforms.place.topic.partitions",
            "library.author:4,library.book:8,library.outbox-canary:1",
            "lint.route.partitions",
        ),
        ("transforms.place.field", "value.tenant", "lint.route.partition-field"),
    ],
)
def test_covers_the_transform_chain(key: str, value: str, rule: str) -> None:
    assert {check.id for check in failed_checks(with_transforms({**BY_FIELD, key: value}))} == {rule}


@pytest.mark.parametrize(("text", "expected"), [("5", 5), (" 5 ", 5), (None, 9), ("five", 9), ("-5", -5), ("", 9)])
def test_parses_numbers(text: str | None, expected: int) -> None:
    assert parse_int(text, 9) == expected


def test_parses_schema_versions() -> None:
    router = outbox_router(valid_input().config)
    assert router is not None
    assert [(entry.label, entry.id) for entry in schema_versions(router, "book")] == [("1", UNKNOWN)]
    assert outbox_router(with_transforms(CHAIN).config) is None
