from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import MAX_SOCKET_PATH_BYTES, Layout, create_own_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_with_secrets_are_private(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        layout = Layout(tmp_path)
        layout.create()
    finally:
        os.umask(before)
    assert mode(layout.configuration) == mode(layout.secrets) == 0o700
    assert mode(layout.home) == mode(layout.data) == 0o755


def test_socket_of_a_long_project_path_has_a_short_path(tmp_path: Path) -> None:
    """The kernel limits the path of a unix socket to about 100 bytes."""
    layout = Layout(tmp_path.joinpath(*["a-folder-with-a-long-name"] * 5))
    assert len(os.fsencode(layout.socket)) <= MAX_SOCKET_PATH_BYTES
    assert layout.stack_id in str(layout.socket)


def test_counts_path_length_in_bytes(tmp_path: Path) -> None:
    layout = Layout(tmp_path / ("書" * 25))
    assert len(os.fsencode(layout.socket)) <= MAX_SOCKET_PATH_BYTES


def test_projects_have_distinct_names(tmp_path: Path) -> None:
    first, second = Layout(tmp_path / "one"), Layout(tmp_path / "two")
    assert first.stack_id != second.stack_id
    assert first.external_postgres_home != second.external_postgres_home


def test_resolves_links_to_the_same_stack(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "project")
    assert Layout(tmp_path / "link").root == Layout(tmp_path / "project").root


@pytest.mark.parametrize("name", ["a:b", "a,b", "100%", "a;b", "a #1", "it's"])
def test_rejects_paths_with_special_characters(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="the path contains"):
        Layout(tmp_path / name)


def test_accepts_a_space(tmp_path: Path) -> None:
    assert Layout(tmp_path / "my projects").home.name == "stack"


def test_rejects_a_linked_folder(tmp_path: Path) -> None:
    """The test guards against a link in a world-writable folder that another user created first."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").symlink_to(tmp_path / "theirs")
    with pytest.raises(StackError, match="is a link or a file"):
        create_own_folder(tmp_path / "mine", 0o700)


def test_reuses_its_own_folder(tmp_path: Path) -> None:
    for _ in range(2):
        create_own_folder(tmp_path / "mine", 0o700)
    assert mode(tmp_path / "mine") == 0o700
