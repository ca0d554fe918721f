"""Errors of the commands before they connect to any system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outbox_kit.backfill import Options, backfill, republish
from outbox_kit.cli.commands.backfill import _read_keys
from outbox_kit.deployment import Deployment
from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Pipeline
from outbox_kit.progress import silent


def test_keys_are_lines_and_are_taken_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes("a\r\n\n b \nc\u2028d\nlast".encode())
    assert _read_keys(path) == ["a", " b ", "c\u2028d", "last"]


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"\xff", "not UTF-8")])
def test_a_keys_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"cannot read keys from .*: {reason}"):
        _read_keys(path)


def test_nothing_is_written_before_the_pipeline_is_deployed(deployed: Callable[..., Deployment]) -> None:
    deployment = deployed()
    for run in (
        lambda: backfill(deployment, [], silent, Options()),
        lambda: republish(deployment, "book", ["1"], silent),
    ):
        with pytest.raises(RefusedError, match="pipeline library is not deployed to fixed"):
            run()


def test_the_example_can_be_backfilled_whole(library: Pipeline) -> None:
    assert [name for name, aggregate in library.aggregates.items() if aggregate.backfill] == ["author", "book"]
