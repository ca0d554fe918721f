"""Fixtures for all tests: a separate project folder, and one embedded stack per run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import settings

from outbox_kit.stack import Options, Stack, StackState
from outbox_kit.stack.services.java import FAST_START_OPTIONS

REPOSITORY = Path(__file__).resolve().parent.parent

# With few polls, workers with idle connectors leave their CPU time to the tests.
POLL_INTERVAL_MS = 200

# Hypothesis fails an example that takes over 200 ms. On a small machine, the other tests of a run can cause this.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder."""
    for item in items:
        folder = item.path.relative_to(REPOSITORY / "tests").parts[0]
        if folder in ("spark", "integration", "cluster"):
            item.add_marker(folder)


def make_project(folder: Path) -> Path:
    """Create a project like a user's, with the example's files."""
    for name in ("connectors", "schemas"):
        shutil.copytree(REPOSITORY / name, folder / name)
    environment = folder / "connectors" / "environments" / "local.yaml"
    content = yaml.safe_load(environment.read_text())
    content["connector"]["poll_interval_ms"] = POLL_INTERVAL_MS
    environment.write_text(yaml.safe_dump(content))
    return folder


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project folder that the run's stack belongs to."""
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def stack(project: Path) -> Iterator[Stack]:
    """The embedded stack, started once per run and deleted at its end."""
    # The tests process few records, so the JVM's optimizing compiler would take a third of the servers' CPU time.
    stack = Stack(project, Options(jvm_options=f"{FAST_START_OPTIONS} -XX:+UseSerialGC"))
    progress = print if "CI" in os.environ else (lambda _: None)
    try:
        stack.up(progress)
        yield stack
    finally:
        stack.down(progress, purge=True)


@pytest.fixture(scope="session")
def state(stack: Stack) -> StackState:
    """Addresses of the running stack."""
    actual = stack.state()
    assert actual is not None
    return actual


@pytest.fixture(scope="session")
def source_dsn(state: StackState) -> str:
    """DSN of the source database as the administrator."""
    return state.postgres
