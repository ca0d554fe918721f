"""Sizes and timeouts that are derived from `connector.max_record_bytes` and `delivery_timeout_ms`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.linting.samples import configured, environment, failed_checks, valid_input

from outbox_kit.linting import LintInput
from outbox_kit.results.checks import Status

MEBIBYTE = 1_048_576
LARGEST = 95 * MEBIBYTE  # above this size, the consumer's limit must also be raised


def sized(**connector: int) -> LintInput:
    actual = environment()
    changed = actual.connector.model_validate({**actual.connector.model_dump(), **connector})
    return valid_input(settings=actual.model_copy(update={"connector": changed}))


def producer(lint_input: LintInput, key: str) -> int:
    return int(lint_input.config[f"producer.override.{key}"])


@settings(max_examples=40)
@given(record=st.integers(10_000, LARGEST), delivery=st.integers(1_000, 600_000))
def test_sizes_are_consistent_for_any_limit(record: int, delivery: int) -> None:
    created = sized(max_record_bytes=record, delivery_timeout_ms=delivery)
    assert failed_checks(created) == []
    assert record < producer(created, "max.request.size") <= producer(created, "buffer.memory") // 4
    assert producer(created, "batch.size") <= producer(created, "max.request.size")
    assert {int(topic.config["max.message.bytes"]) for topic in created.topics.values()} == {
        producer(created, "max.request.size")
    }
    assert producer(created, "request.timeout.ms") + producer(created, "linger.ms") <= producer(
        created, "delivery.timeout.ms"
    )


def test_keeps_defaults_of_kafka_where_sufficient() -> None:
    created = valid_input()
    assert producer(created, "buffer.memory") == 33_554_432
    assert producer(created, "request.timeout.ms") == 30_000


def test_reports_consumer_limits_to_raise() -> None:
    (check,) = failed_checks(sized(max_record_bytes=120_000_000))
    assert (check.id, check.status) == ("lint.size.fetch", Status.WARN)
    assert "receive.message.max.bytes" in check.remedy


def test_uses_default_sizes_of_kafka_for_missing_settings() -> None:
    """Without the overrides, the producer's limit is 1 MiB, which is less than the router's limit."""
    created = valid_input()
    overrides = {
        key: None
        for key in created.config
        if key.startswith("producer.override.") and key.endswith((".size", ".memory"))
    }
    assert {check.id for check in failed_checks(configured(created, dict(overrides)))} == {"lint.size.router"}


@pytest.mark.parametrize(
    ("size", "status"),
    [(512 * 1024 - 1, []), (512 * 1024, [Status.WARN]), (900 * 1024 - 1, [Status.WARN]), (900 * 1024, [Status.FAIL])],
)
def test_checks_the_size_of_the_stored_config(size: int, status: list[Status]) -> None:
    """Non-ASCII characters are counted in bytes of UTF-8."""
    empty = configured(valid_input(), {"column.exclude.list": ""})
    room = size - len(
        json.dumps({"properties": dict(empty.config)}, ensure_ascii=False, separators=(",", ":")).encode()
    )
    filler = "é" * (room // 2) + "x" * (room % 2)
    actual = failed_checks(configured(valid_input(), {"column.exclude.list": filler}))
    assert [check.status for check in actual] == status
    assert {check.id for check in actual} <= {"lint.size.config"}
