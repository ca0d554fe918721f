"""Faults as data, and the copy of a data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_lab.drill.faults import FAULTS, Action, NotApplicableError
from outbox_lab.drill.faults.base_backup import copy_data
from outbox_lab.drill.faults.disk import mount_tmpfs
from outbox_lab.drill.faults.injection import BREAKAGES, DAMAGES, PREPARATIONS


def names(action: Action) -> set[str]:
    return {fault.name for fault in FAULTS.values() if fault.action is action}


def test_every_damage_and_breakage_has_a_function() -> None:
    assert names(Action.BREAK) == BREAKAGES.keys()
    assert names(Action.DAMAGE) == DAMAGES.keys()
    assert PREPARATIONS.keys() <= FAULTS.keys()


def test_commits_can_only_be_undone_by_another_database() -> None:
    assert all(fault.replaces_database and fault.needs_repair for fault in FAULTS.values() if fault.undoes_commits)


def test_a_backup_has_no_slots_and_no_process_id(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for file in ("base/5/1", "pg_replslot/slot/state", "pg_wal/0001", "postmaster.pid", "PG_VERSION"):
        (data / file).parent.mkdir(parents=True, exist_ok=True)
        (data / file).write_text("x")
    copy_data(data, tmp_path / "copy")
    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert copied == {"base", "base/5", "base/5/1", "pg_replslot", "pg_wal", "PG_VERSION"}


def test_without_mount_a_full_disk_is_not_applicable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotApplicableError, match="cannot simulate a full disk on this machine"):
        mount_tmpfs(tmp_path / "disk", 1024 * 1024)
