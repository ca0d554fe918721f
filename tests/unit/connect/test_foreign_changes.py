"""Changes that another tool made to the live config, by whether they can drop, change or reorder records."""

from __future__ import annotations

import pytest

from outbox_kit.connect.config_diff import FINGERPRINT_KEY, with_fingerprint
from outbox_kit.connect.foreign_changes import harmful_foreign_keys

WRITTEN = with_fingerprint(
    "p", {"transforms": "outbox", "poll.interval.ms": "500", "database.password": "${file:/s:p}", "topic.prefix": "p"}
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"skipped.operations": "c"}, ["skipped.operations"]),
        ({"transforms": "outbox,filter", "transforms.filter.type": "F"}, ["transforms", "transforms.filter.type"]),
        ({"predicates": "x", "errors.tolerance": "all"}, ["errors.tolerance", "predicates"]),
        ({"producer.override.acks": "0", "producer.override.linger.ms": "9"}, ["producer.override.acks"]),
        ({"database.hostname": "other", "database.user": "other"}, ["database.hostname"]),
        ({"key.of.an.unknown.plugin": "x"}, ["key.of.an.unknown.plugin"]),
        ({"poll.interval.ms": "7", "max.batch.size": "7", "errors.log.enable": "true"}, []),
        ({"exactly.once.support": "requested", "producer.override.client.id": "x"}, []),
        ({"database.sslmode": "require", "producer.override.sasl.mechanism": "PLAIN"}, []),
        ({"database.password": "****"}, []),
    ],
)
def test_only_keys_that_can_lose_records_count(changes: dict[str, str], expected: list[str]) -> None:
    assert harmful_foreign_keys(WRITTEN, {**WRITTEN, "name": "c", **changes}, WRITTEN) == expected


def test_changed_files_are_no_foreign_change() -> None:
    desired = with_fingerprint("p", {**WRITTEN, "transforms": "outbox,route", "topic.prefix": "q"})
    unmasked, masked = WRITTEN, {**WRITTEN, "database.password": "****"}
    for last_working in (WRITTEN, None):
        assert harmful_foreign_keys(desired, unmasked, last_working) == []
    assert harmful_foreign_keys(desired, masked, WRITTEN) == []
    assert harmful_foreign_keys(desired, {**masked, "transforms": "filter"}, WRITTEN) == ["transforms"]
    # apply wrote a config that has not run yet, so the lock file has an earlier one.
    assert harmful_foreign_keys(desired, with_fingerprint("p", {**WRITTEN, "transforms": "x"}), WRITTEN) == []


def test_foreign_change_is_found_without_the_config_of_the_lock_file() -> None:
    edited = {**WRITTEN, "transforms": "filter"}
    unmarked = {key: value for key, value in edited.items() if key != FINGERPRINT_KEY}
    assert harmful_foreign_keys(WRITTEN, edited, None) == ["transforms"]
    assert harmful_foreign_keys(WRITTEN, unmarked, WRITTEN) == ["transforms"]
    # It is unknown what outbox-kit wrote: the connector can be one that `outbox adopt` is replacing.
    assert harmful_foreign_keys(WRITTEN, unmarked, None) == []
