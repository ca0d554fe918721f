"""Fixture `outbox_stack` for the tests of the examples: the running embedded stack instead of containers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.integration.conftest import remove_connector_and_slot

from outbox_kit.deployment import apply, open_deployment
from outbox_kit.results import silent
from outbox_kit.stack import Stack


@dataclass
class EmbeddedStack:
    """The members of OutboxStack that the examples use."""

    source_dsn: str
    bootstrap_servers: str
    registry_url: str
    cleanup: ExitStack = field(default_factory=ExitStack)

    def apply(self, pipeline_file: Path) -> None:
        """Deploy a pipeline in the example's environment `local` until the end of the tests."""
        deployment = self.cleanup.enter_context(open_deployment(pipeline_file, "local"))
        self.cleanup.callback(remove_connector_and_slot, deployment)
        apply(deployment, silent)


@pytest.fixture(scope="session")
def outbox_stack(request: pytest.FixtureRequest) -> Iterator[EmbeddedStack]:
    """Return the stack whose state file the examples read. The file is in the folder in which pytest was started."""
    state = Stack(request.config.invocation_params.dir / "book_rental").state()
    assert state is not None
    stack = EmbeddedStack(state.postgres, state.kafka, state.registry)
    with stack.cleanup:
        yield stack
