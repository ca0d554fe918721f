"""Backup files of offsets: permissions, no overwriting, and validation of their source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operations.samples import connector, positions

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.operations import offset_backup
from outbox_kit.pipeline import Lock

Deployed = Callable[..., Deployment]


@pytest.fixture
def written(deployed: Deployed, lock: Lock, tmp_path: Path) -> Path:
    """A backup of the worked example."""
    path = tmp_path / "backups" / "offsets.json"
    offset_backup.write(path, offset_backup.create(deployed(), connector(position=1200), positions(1200), lock))
    return path


def test_a_backup_contains_offsets_slot_and_identity(written: Path, deployed: Deployed, lock: Lock) -> None:
    content = json.loads(written.read_text())
    assert content["offsets"] == [{"partition": {"server": "library"}, "offset": seed(1200)}]
    assert content["slot"] == {"name": "library_outbox", "confirmed_flush": 1000, "restart": 900}
    assert (content["system_identifier"], content["timeline"], content["source_epoch"]) == ("7301", 1, 2)
    assert re.fullmatch(r"[0-9a-f]{12}", content["config_fingerprint"])
    assert written.stat().st_mode & 0o777 == 0o600
    assert offset_backup.read(written, deployed(), lock) == seed(1200)


def test_a_backup_before_the_first_apply(deployed: Deployed) -> None:
    backup = offset_backup.create(deployed(), connector(), positions(), None)
    assert (backup.system_identifier, backup.source_epoch) == (None, 1)


def test_an_existing_file_is_not_overwritten(written: Path, deployed: Deployed, lock: Lock) -> None:
    before = written.read_text()
    with pytest.raises(RefusedError, match="already exists"):
        offset_backup.write(written, offset_backup.create(deployed(), connector(), positions(), lock))
    assert written.read_text() == before


def test_a_path_that_cannot_be_written(tmp_path: Path, deployed: Deployed) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write"):
        offset_backup.write(
            tmp_path / "file" / "x.json", offset_backup.create(deployed(), connector(), positions(), None)
        )


def test_the_default_path_is_next_to_the_lock_file(deployed: Deployed, tmp_path: Path) -> None:
    path = offset_backup.default_path(deployed())
    assert path.parent == tmp_path
    assert re.fullmatch(r"library\.fixed\.offsets\.\d{8}T\d{12}Z\.json", path.name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system_identifier": "9"}, "system_identifier 9, not 7301"),
        ({"timeline": 7}, "timeline 7, not 1"),
        ({"source_epoch": 1}, "source_epoch 1, not 2"),
        ({"pipeline": "other"}, "pipeline other, not library"),
        ({"environment": "other"}, "environment other"),
        ({"connector": "other"}, "connector other"),
        ({"slot": {"name": "other", "confirmed_flush": 1, "restart": 1}}, "slot other"),
        ({"offsets": []}, "has no offset with an LSN for prefix 'library'"),
        ({"offsets": [{"partition": {"server": "x"}, "offset": {"lsn": 1}}]}, "has no offset with an LSN"),
        ({"offsets": [{"partition": {"server": "library"}, "offset": {"txId": 1}}]}, "has no offset with an LSN"),
        ({"offsets": [{"partition": {"server": "library"}}]}, "has no offset with an LSN"),
        ({"kind": "something else"}, "kind: Input should be 'outbox-kit offsets'"),
        ({"surplus": 1}, "surplus: Extra inputs are not permitted"),
    ],
)
def test_rejects_a_backup_of_another_source(
    written: Path, deployed: Deployed, lock: Lock, change: dict[str, Any], message: str
) -> None:
    content = {**json.loads(written.read_text()), **change}
    written.write_text(json.dumps(content))
    with pytest.raises(OutboxError, match=re.escape(message)) as refused:
        offset_backup.read(written, deployed(), lock)
    assert refused.value.hint


@pytest.mark.parametrize(("content", "message"), [(None, "cannot read"), ("{", "the file: Invalid JSON")])
def test_rejects_a_file_that_is_not_a_backup(
    tmp_path: Path, deployed: Deployed, lock: Lock, content: str | None, message: str
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        offset_backup.read(path, deployed(), lock)
