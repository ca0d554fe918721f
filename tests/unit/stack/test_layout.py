from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from outbox_kit.errors import ConfigurationError, StackError
from outbox_kit.stack.layout import LONGEST_SOCKET_PATH, Layout, private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_holds_secrets_is_private_and_the_rest_can_be_entered(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        layout = Layout(tmp_path)
        layout.create()
    finally:
        os.umask(before)
    assert mode(layout.configuration) == mode(layout.secrets) == 0o700
    assert mode(layout.home) == mode(layout.data) == 0o755


def test_a_deep_project_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    """Guards a limit of the kernel: a unix socket's path holds about a hundred bytes."""
    layout = Layout(tmp_path.joinpath(*["a-folder-with-a-long-name"] * 5))
    assert len(os.fsencode(layout.socket)) <= LONGEST_SOCKET_PATH
    assert layout.stack_id in str(layout.socket)


def test_the_length_is_counted_in_bytes(tmp_path: Path) -> None:
    layout = Layout(tmp_path / ("書" * 25))
    assert len(os.fsencode(layout.socket)) <= LONGEST_SOCKET_PATH


def test_two_projects_never_share_names(tmp_path: Path) -> None:
    one, two = Layout(tmp_path / "one"), Layout(tmp_path / "two")
    assert one.stack_id != two.stack_id
    assert one.outside != two.outside


def test_a_project_reached_through_a_link_is_the_same_stack(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "project")
    assert Layout(tmp_path / "link").root == Layout(tmp_path / "project").root


@pytest.mark.parametrize("name", ["a:b", "a,b", "100%", "a;b", "a #1", "it's"])
def test_paths_that_the_parts_would_misread_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="the path contains"):
        Layout(tmp_path / name)


def test_a_space_is_fine(tmp_path: Path) -> None:
    assert Layout(tmp_path / "my projects").home.name == "stack"


def test_a_folder_that_a_link_stands_for_is_refused(tmp_path: Path) -> None:
    """Guards against a name under a world-writable folder that another user created first."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").symlink_to(tmp_path / "theirs")
    with pytest.raises(StackError, match="belongs to uid"):
        private_folder(tmp_path / "mine", 0o700)


def test_an_own_folder_is_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        private_folder(tmp_path / "mine", 0o700)
    assert mode(tmp_path / "mine") == 0o700
