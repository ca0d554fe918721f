"""The lock file: round trip, and errors for an unusable file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Lock, read_lock, write_lock


def test_returns_no_lock_without_a_file(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "none.lock.json") is None


def test_round_trip(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "new" / "folder" / "a.lock.json"
    write_lock(path, lock)
    assert read_lock(path) == lock
    assert path.read_text(encoding="utf-8").endswith("}\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["a.lock.json"]


def test_writing_is_deterministic(tmp_path: Path, lock: Lock) -> None:
    original, copy = tmp_path / "1.json", tmp_path / "2.json"
    write_lock(original, lock)
    actual = read_lock(original)
    assert actual is not None
    write_lock(copy, actual)
    assert original.read_bytes() == copy.read_bytes()


def test_a_new_lock_starts_at_epoch_one() -> None:
    lock = Lock(pipeline="p", environment="e")
    assert (lock.source_epoch, lock.source, lock.schemas) == (1, None, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.lock\.json: invalid JSON"),
        (b"{", "invalid JSON"),
        (b"<<<<<<< ours\n{}", "invalid JSON"),
        (b"[]", "dictionary"),
        (b"{}", "pipeline: Field required"),
        (b'{"pipeline": "p", "environment": "e", "extra": 1}', "extra: Extra inputs"),
        (b'{"pipeline": "p", "environment": "e", "source_epoch": "x"}', "source_epoch: "),
        (
            b'{"pipeline": "p", "environment": "e", "schemas": {"a": [{}]}}',
            r"schemas\.a\.0\.subject: Field required",
        ),
        (b'{"pipeline": "\xff"}', "invalid JSON"),
        # written by a version that did not record the timeline
        (
            b'{"pipeline": "p", "environment": "e", "source": '
            b'{"system_identifier": "7301", "slot": "s", "slot_lsn": "0/1", "publication_oid": 1}}',
            r"source\.timeline: Field required",
        ),
    ],
)
def test_reports_a_corrupt_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.lock.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_lock(path)
    assert caught.value.message.startswith(f"lock file {path}: ")
    assert "version control" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"), [("{", "schemas.book: not valid JSON"), ("[" * 900 + "]" * 900, "nested over 150 levels")]
)
def test_reports_a_schema_that_cannot_be_processed(tmp_path: Path, lock: Lock, text: str, message: str) -> None:
    path = tmp_path / "a.lock.json"
    schema = lock.schemas["book"][0].model_copy(update={"text": text})
    write_lock(path, lock.model_copy(update={"schemas": {"book": [schema]}}))
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_lock(path)
    assert caught.value.message.startswith(f"lock file {path}: schemas.book: ")


def test_reports_a_folder_at_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lock file"):
        read_lock(tmp_path)


def test_keeps_the_old_file_when_a_write_fails(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "a.lock.json"
    write_lock(path, lock)
    before = path.read_bytes()
    (tmp_path / "a.lock.json.partial").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_lock(path, lock.model_copy(update={"source_epoch": 9}))
    assert path.read_bytes() == before
    assert json.loads(before)["source_epoch"] == 2


def test_a_later_release_can_add_a_field(tmp_path: Path, lock: Lock) -> None:
    """The digest contains the values of the file, not the defaults of the release that reads it."""
    path = tmp_path / "a.lock.json"
    write_lock(path, lock)
    document = json.loads(path.read_text())
    del document["sha256"], document["registry_url"]
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**document, "sha256": digest}))
    assert read_lock(path) == lock


def test_refuses_the_format_of_another_release(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "a.lock.json"
    write_lock(path, lock)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2, "new": {}}))
    with pytest.raises(ConfigurationError, match="format 2; this version of outbox-kit reads format 1"):
        read_lock(path)


@pytest.mark.parametrize("change", [{"cluster_id": "another"}, {"pipeline": "another"}, {"sha256": ""}])
def test_reports_a_file_that_was_changed_by_hand(tmp_path: Path, lock: Lock, change: dict[str, str]) -> None:
    path = tmp_path / "a.lock.json"
    write_lock(path, lock)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigurationError, match="changed by hand"):
        read_lock(path)
