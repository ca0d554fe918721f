"""One system against another: what the connector was told against what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.postgres.samples import DETAILS
from tests.unit.verification.samples import REACHED, with_live
from tests.unit.verification.samples import world as deployed_world

from outbox_kit.deployment import Deployment
from outbox_kit.errors import UnreachableError
from outbox_kit.pipeline import Lock
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.rules import Check, Status, judge
from outbox_kit.verification import cross_checks
from outbox_kit.verification.routes import number, router_prefix, routes
from outbox_kit.verification.snapshot import Answer, Later, World

PREFIX = "transforms.outbox.aggregate."
IDS = [each.id for each in cross_checks.RULES]


@pytest.fixture
def world(deployed: Callable[..., Deployment], lock: Lock) -> World:
    return deployed_world(deployed(), lock)


def run(world: World) -> dict[str, Check]:
    return {check.id: check for check in judge(cross_checks.RULES, world)}


def not_well(world: World) -> dict[str, str]:
    return {check.id: check.seen for check in run(world).values() if check.status is not Status.PASS}


def test_a_deployed_world_passes(world: World) -> None:
    assert list(run(world)) == IDS
    assert not_well(world) == {}


CONFIGS: list[tuple[dict[str, str | None], str, str]] = [
    ({f"{PREFIX}book.partitions": "9"}, "path.partitions", "library.book has 4, the router 9"),
    ({f"{PREFIX}book.partitions": None}, "path.partitions", "library.book has 4, the router 0"),
    (
        {"transforms.outbox.max.record.bytes": "2000000"},
        "path.record-size",
        "2000000 (the router) > 1065536 (the producer's max.request.size); "
        "2000000 (the router) > 1065536 (max.message.bytes of library.author); "
        "2000000 (the router) > 1065536 (max.message.bytes of library.book); "
        "2000000 (the router) > 1065536 (max.message.bytes of library.outbox-canary)",
    ),
    (
        {"producer.override.buffer.memory": "1000"},
        "path.record-size",
        "1065536 (a request) > 1000 (the producer's buffer.memory)",
    ),
    (
        {f"{PREFIX}book.schema.1.id": "8"},
        "path.schema-ids",
        "library.book-value version 1 has id 7, the router writes 8",
    ),
    ({f"{PREFIX}book.schema.1": '"string"'}, "path.schema-ids", "library.book-value version 1 is another schema"),
    ({f"{PREFIX}book.schema.1": "no schema"}, "path.schema-ids", "library.book-value version 1 is another schema"),
    ({f"{PREFIX}book.schema.versions": "5"}, "path.schema-ids", "library.book-value has no version 5"),
    (
        {"status.update.interval.ms": "60000"},
        "path.wal-sender-timeout",
        "wal_sender_timeout 60000 ms, an acknowledgement every 60000 ms",
    ),
    ({"producer.override.max.block.ms": None}, "path.producer-gives-up", "max.block.ms for ever, delivery.timeout.ms"),
    (
        {"producer.override.delivery.timeout.ms": "2147483647"},
        "path.producer-gives-up",
        "max.block.ms 60000 ms, delivery.timeout.ms 2147483647 ms",
    ),
    (
        {"producer.override.delivery.timeout.ms": None},
        "path.producer-gives-up",
        "max.block.ms 60000 ms, delivery.timeout.ms 2147483647 ms",
    ),
]


@pytest.mark.parametrize(("changes", "identifier", "seen"), CONFIGS, ids=[seen for *_, seen in CONFIGS])
def test_each_fault_of_the_config_is_named_alone(
    world: World, changes: dict[str, str | None], identifier: str, seen: str
) -> None:
    found = not_well(with_live(world, changes))
    assert list(found) == [identifier]
    assert found[identifier].startswith(seen)


def test_an_offset_ahead_of_the_server(world: World) -> None:
    look = world.postgres.look
    assert look is not None
    behind = replace(look, actual=replace(look.actual, wal_position=REACHED - 1))
    moved = replace(world, postgres=Answer(behind), later=replace(world.later, position=REACHED - 1))
    assert not_well(moved) == {"path.offset-not-ahead": f"connector at {REACHED}, server at {REACHED - 1}"}
    assert not_well(replace(moved, later=replace(world.later, position=REACHED))) == {}


def test_a_slot_ahead_of_the_offset(world: World) -> None:
    look = world.postgres.look
    assert look is not None
    details = replace(DETAILS, slot={**(DETAILS.slot or {}), "confirmed": REACHED + 1})
    found = not_well(replace(world, postgres=Answer(replace(look, details=details))))
    assert found == {"path.offset-covers-slot": f"slot at {REACHED + 1}, connector at {REACHED}"}


@pytest.mark.parametrize(("timeout", "good"), [(0, True), (20_000, True), (19_999, False)])
def test_the_timeout_of_the_server(world: World, timeout: int, good: bool) -> None:
    look = world.postgres.look
    assert look is not None
    found = replace(world, postgres=Answer(replace(look, details=replace(DETAILS, sender_timeout_ms=timeout))))
    assert ("path.wal-sender-timeout" not in not_well(found)) is good


def test_a_registry_that_lost_a_version(world: World) -> None:
    gone: dict[tuple[str, int], SchemaVersion | None] = {**world.later.registered, ("library.author-value", 1): None}
    found = not_well(replace(world, later=Later(world.later.position, gone)))
    assert found == {"path.schema-ids": "library.author-value has no version 1"}


@pytest.mark.parametrize("system", ["postgres", "kafka", "registry", "connect"])
def test_a_system_that_is_down_makes_its_pairs_unknown(world: World, system: str) -> None:
    found = run(replace(world, **{system: Answer(None, UnreachableError("down"))}))  # type: ignore[arg-type]
    assert {check.status for check in found.values()} <= {Status.PASS, Status.UNKNOWN}
    assert Status.UNKNOWN in {check.status for check in found.values()}
    assert list(found) == IDS


def test_another_template_has_no_routes(world: World) -> None:
    other = {"connector.class": "x", "transforms": "event", "transforms.event.type": "io.debezium.EventRouter"}
    look = world.connect.look
    assert look is not None
    waits = {"producer.override.max.block.ms": "60000", "producer.override.delivery.timeout.ms": "120000"}
    config = {**other, **waits}
    observed = replace(look.observed, actual=replace(look.observed.actual, config=config))
    found = run(replace(world, connect=Answer(replace(look, observed=observed))))
    assert found["path.partitions"].seen == "no OutboxRouter"
    assert {check.status for check in found.values()} == {Status.PASS}


def test_routes(world: World) -> None:
    config = cross_checks.live(world) or {}
    found = routes(config)
    assert router_prefix(config) == "transforms.outbox."
    assert list(found) == ["author", "book", "outbox-canary"]
    assert (found["author"].topic, found["author"].partitions) == ("library.author", 4)
    assert [(version.number, version.id) for version in found["author"].versions] == [(2, 12), (1, 3)]
    assert routes({"transforms.a.type": "b"}) == {}


@pytest.mark.parametrize(("text", "expected"), [("5", 5), (" 5 ", 5), (None, 9), ("five", 9), ("-5", 9), ("", 9)])
def test_numbers(text: str | None, expected: int) -> None:
    assert number(text, 9) == expected
