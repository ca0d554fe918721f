"""Rules of `lint`: each violation fails exactly one rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.linting.broken_files import FILE_CASES, with_backfill
from tests.unit.linting.broken_settings import SETTING_CASES
from tests.unit.linting.samples import (
    CHAIN,
    EVENT_ROUTER,
    ROUTER,
    configured,
    environment,
    failed_checks,
    on_this_machine,
    second_pipeline,
    valid_input,
    with_messages,
    with_payloads,
    with_source,
    with_transforms,
)

from outbox_kit.linting import RULES, LintInput, lint, lint_deployment
from outbox_kit.linting.rule_catalogue import JOB_RULE_IDS
from outbox_kit.results.checks import Severity, Status


def with_payload(expression: str) -> LintInput:
    """Return an input with a backfill query that returns this payload."""
    return with_backfill(f"select id as aggregate_id, {expression} as payload from book b")


Inputs = LintInput | Sequence[LintInput]
Case = tuple[str, Callable[[], Inputs]]
CASES: list[Case] = [*SETTING_CASES, *FILE_CASES]
VALID: dict[str, Callable[[], list[LintInput]]] = {
    "router": lambda: [valid_input()],
    "event router": lambda: [with_transforms(EVENT_ROUTER)],
    "chain": lambda: [with_transforms(CHAIN)],
    "messages": lambda: [with_messages()],
    "text": lambda: [with_payloads("text", tombstone_event_types=["Lost"])],
    "bytes": lambda: [with_payloads("bytes", tombstone_event_types=["Lost"])],
    "Avro": lambda: [with_payloads("avro")],
    "Confluent's Avro": lambda: [with_payloads("confluent-avro")],
    "unknown fields": lambda: [with_payloads("json", unknown_fields="ignore", tombstone_event_types=["Lost", "Sold"])],
    "columns": lambda: [with_source(schema_version_column="version", header_columns={"tenant": "tenant"})],
    "policies": lambda: [with_source(updated_rows="warn", deleted_rows="ignore", cloudevents_source="/library")],
    "fields of a row": lambda: [with_payload("jsonb_set(to_jsonb(b), '{a}', jsonb_build_object('street', street))")],
    "fields of a row, minus one": lambda: [with_payload("to_jsonb(b) - 'internal'")],
    "more fields than named": lambda: [with_payload("jsonb_build_object('id', id) || extra")],
    "two pipelines": lambda: [valid_input(), second_pipeline()],
    "this machine": lambda: [valid_input(settings=on_this_machine())],
    "one broker": lambda: [
        valid_input(
            settings=environment(bootstrap_servers="127.0.0.1:9092", replication_factor=1, min_insync_replicas=1)
        )
    ],
}


@pytest.mark.parametrize("name", VALID)
def test_valid_files_pass_every_rule(name: str) -> None:
    inputs = VALID[name]()
    assert failed_checks(*inputs) == []
    assert [check.id for check in lint(inputs)] == [rule.id for rule in RULES]


@pytest.mark.parametrize(("rule", "create"), CASES, ids=[f"{rule}-{number}" for number, (rule, _) in enumerate(CASES)])
def test_violation_fails_exactly_its_rule(rule: str, create: Callable[[], Inputs]) -> None:
    inputs = create()
    actual = failed_checks(inputs) if isinstance(inputs, LintInput) else failed_checks(*inputs)
    assert {check.id for check in actual} == {f"lint.{rule}"}, actual
    for check in actual:
        assert check.seen
        assert check.expected
        assert check.remedy
        assert (check.status is Status.FAIL) == (check.severity is Severity.ERROR)


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"header_columns": {"a": "a", "b": "x-b"}}, "table.fields.additional.placement", "b:header:x-b, a:header"),
        ({}, "table.op.invalid.behavior", "fatal"),
        ({}, "deleted.rows", "fail"),
        ({}, "aggregate.book.payload.format", "json"),
        ({}, "aggregate.book.tombstone.event.types", ""),
    ],
    ids=str,
)
def test_accepts_equivalent_options(changes: dict[str, Any], key: str, value: str) -> None:
    assert failed_checks(configured(with_source(**changes), {f"{ROUTER}{key}": value})) == []


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in RULES} == {f"lint.{rule}" for rule, _ in CASES}


def test_ids_are_unique_and_every_rule_has_texts() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert [rule.id for rule in RULES if not (rule.condition and rule.reason)] == []


def test_warnings_do_not_fail() -> None:
    by_rule = {rule.id: rule.severity for rule in RULES}
    assert by_rule["lint.compaction.delete.retention.ms"] is Severity.WARNING
    assert by_rule["lint.setting.snapshot.mode"] is Severity.ERROR


def test_applies_the_same_rules_to_a_deployment() -> None:
    valid = valid_input()
    config = {**valid.config, "snapshot.mode": "initial"}
    actual = lint_deployment(valid.pipeline, valid.environment, config)
    assert [check.id for check in actual if check.status is Status.FAIL] == ["lint.setting.snapshot.mode"]
    assert [check.id for check in actual] == [rule.id for rule in RULES if rule.id not in JOB_RULE_IDS]


def test_findings_name_their_file_among_several() -> None:
    pipeline = second_pipeline()
    changed = LintInput(
        pipeline.pipeline, pipeline.environment, {**pipeline.config, "snapshot.mode": "initial"}, "second.yaml"
    )
    (check,) = failed_checks(valid_input(), changed)
    assert check.seen == "second.yaml: snapshot.mode=initial"


def test_each_finding_is_a_separate_check() -> None:
    config = {**valid_input().config, "errors.deadletterqueue.topic.name": "a", "errors.deadletterqueue.x": "b"}
    actual = failed_checks(LintInput(valid_input().pipeline, environment(), config))
    assert [check.id for check in actual] == ["lint.dead-letter-queue"] * 2


def test_checks_only_files_without_a_config() -> None:
    valid = valid_input()
    assert failed_checks(LintInput(valid.pipeline, valid.environment, {})) == []
