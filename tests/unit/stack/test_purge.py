"""`outbox stack down --purge` in a folder without a stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kit.stack import Stack
from outbox_kit.stack.errors import StackError


def test_purge_deletes_no_folder_of_another_program(tmp_path: Path) -> None:
    artifact = tmp_path / "build" / "stack" / "artifact.bin"
    artifact.parent.mkdir(parents=True)
    artifact.touch()
    with pytest.raises(StackError, match="does not contain any files of a stack"):
        Stack(tmp_path).down(purge=True)
    assert artifact.exists()


@pytest.mark.parametrize("content", ["state.json", "conf/supervisord.conf", "secrets/x.properties"])
def test_purge_deletes_the_folder_of_a_stack(tmp_path: Path, content: str) -> None:
    file = tmp_path / "build" / "stack" / content
    file.parent.mkdir(parents=True)
    file.touch()
    Stack(tmp_path).down(purge=True)
    assert not (tmp_path / "build" / "stack").exists()
