"""Conditions that backfill and republish check before they connect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from outbox_events.errors import RefusedError
from outbox_kit.backfill.session import open_session
from outbox_kit.deployment import Deployment


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("outbox", "pipeline library has no outbox table"),
        (None, "pipeline library is not deployed to fixed"),
    ],
)
def test_rejects_rows_without_a_topic(deployed: Callable[..., Deployment], prefix: str | None, message: str) -> None:
    deployment = deployed()
    source = deployment.pipeline.source.model_copy(update={"message_prefix": prefix})
    pipeline = deployment.pipeline.model_copy(update={"source": source})
    with (
        pytest.raises(RefusedError, match=message),
        open_session(replace(deployment, pipeline=pipeline), ["book"], lock_seconds=1),
    ):
        pytest.fail("no error was raised")
