"""Project folders that are not a checkout of outbox-kit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from tests.conftest import REPOSITORY

from outbox_events.errors import ConfigurationError
from outbox_kit.deployment.deployment import templates_of
from outbox_kit.pipeline import load_pipeline
from outbox_kit.results import silent
from outbox_lab.drill.project import ENVIRONMENT, DrillProject

LOCAL = Path("connectors", "environments", "local.yaml")


def copy_local(folder: Path) -> None:
    (folder / LOCAL).parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / LOCAL, folder / LOCAL)


def test_a_project_without_templates_uses_the_built_in_ones(tmp_path: Path) -> None:
    copy_local(tmp_path)
    project = DrillProject(tmp_path)
    project.write_environment(5432)
    pipeline_file = project.write_pipeline("library")
    assert not templates_of(pipeline_file).exists()
    assert load_pipeline(pipeline_file).connector.template == "outbox-postgres"
    environment = yaml.safe_load((project.folder / "connectors" / "environments" / f"{ENVIRONMENT}.yaml").read_text())
    assert environment["source"]["connector"]["port"] == 5432


def test_a_project_without_a_local_environment_is_rejected_before_the_stack_starts(tmp_path: Path) -> None:
    project = DrillProject(tmp_path)
    with pytest.raises(ConfigurationError) as caught, project.running_stack(silent):
        pytest.fail("the stack was started")
    assert str(tmp_path / LOCAL) in caught.value.message
    assert not project.folder.exists()
