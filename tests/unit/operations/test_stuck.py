"""Listing and resending of stuck aggregates. test_state_comparison.py tests the comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from tests.unit.operations.samples import backfilled

from outbox_events.errors import RefusedError
from outbox_kit.deployment import Deployment
from outbox_kit.operations import stuck
from outbox_kit.operations.state_comparison import ComparisonResult, StateComparison, StuckAggregate
from outbox_kit.results import silent

Deployed = Callable[..., Deployment]


def test_aggregates_that_are_not_compared_are_reported(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [StuckAggregate("book", "k", "stale")]
    monkeypatch.setattr(StateComparison, "run", lambda *_: ComparisonResult(found, {"book": {"k"}}))
    messages: list[str] = []
    assert stuck.list_stuck(backfilled(deployed()), messages.append, older_than=60) == found
    assert [message.split()[0] for message in messages if "is not compared" in message] == ["author"]


def test_resend_needs_a_backfill_query(deployed: Deployed) -> None:
    with pytest.raises(RefusedError, match="author has no `backfill`") as refused:
        stuck.keys_to_resend(backfilled(deployed()), [StuckAggregate("author", "k", "missing")])
    assert "add `backfill`" in refused.value.hint


def test_resend_writes_states_and_tombstones_by_type(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str], Collection[str]]] = []

    def republish(
        _: Deployment, name: str, keys: list[str], __: object, *, tombstones: Collection[str], exact: bool
    ) -> int:
        assert exact
        calls.append((name, keys, tombstones))
        return len(keys)

    monkeypatch.setattr(stuck.backfill, "republish", republish, raising=False)
    actual = [StuckAggregate("book", "a", "missing"), StuckAggregate("book", "b", "ghost")]
    deployment = backfilled(deployed(), "book")
    keys = stuck.keys_to_resend(deployment, actual)
    assert stuck.resend(deployment, keys, silent, tombstones={"book": ("b",)}, misplaced={}) == 2
    assert stuck.resend(deployment, keys, silent, tombstones={}, misplaced={}) == 2
    assert calls == [("book", ["a", "b"], ("b",)), ("book", ["a", "b"], ())]
