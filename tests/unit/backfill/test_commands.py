"""Errors of the commands before they connect to any system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_kit.backfill import BackfillOptions, backfill, republish
from outbox_kit.cli.commands.backfill import _read_keys
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Pipeline
from outbox_kit.results import silent


def test_reads_keys_one_per_line_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes("a\r\n\n b \nc\u2028d\nlast".encode())
    assert _read_keys(path) == ["a", " b ", "c\u2028d", "last"]


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"\xff", "not UTF-8")])
def test_reports_an_unreadable_keys_file(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"cannot read keys from .*: {reason}"):
        _read_keys(path)


def test_requires_a_deployed_pipeline(deployed: Callable[..., Deployment]) -> None:
    deployment = deployed()
    for run in (
        lambda: backfill(deployment, [], silent, BackfillOptions()),
        lambda: republish(deployment, "book", ["1"], silent),
    ):
        with pytest.raises(RefusedError, match="pipeline library is not deployed to fixed"):
            run()


def test_example_has_a_backfill_for_every_aggregate(library: Pipeline) -> None:
    assert [name for name, aggregate in library.aggregates.items() if aggregate.backfill] == ["author", "book"]
