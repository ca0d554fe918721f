from __future__ import annotations

import io
import os
import pwd
import tarfile
import tempfile
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.services import postgres_home
from outbox_kit.stack.services.postgres_home import choose_home, find_archive, postgres_user, unpack

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.runtime = tmp_path / "runtime"
    layout.create()
    return layout


def write_archive(layout: Layout, name: str = "postgres-linux-x86_64.txz", content: bytes = b"one") -> Path:
    """Write an archive of binaries into the runtime folder."""
    path = layout.runtime / "postgres" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as tar:
        member = tarfile.TarInfo("bin/postgres")
        member.size, member.mode = len(content), 0o755
        tar.addfile(member, io.BytesIO(content))
    return path


def test_unpacks_binaries_once(layout: Layout, tmp_path: Path) -> None:
    write_archive(layout)
    unpack(layout, tmp_path)
    binary = tmp_path / "dist" / "bin" / "postgres"
    assert os.access(binary, os.X_OK)
    before = binary.stat().st_ino
    unpack(layout, tmp_path)
    assert binary.stat().st_ino == before


def test_unpacks_a_changed_archive_again(layout: Layout, tmp_path: Path) -> None:
    write_archive(layout)
    unpack(layout, tmp_path)
    write_archive(layout, content=b"another version")
    unpack(layout, tmp_path)
    assert (tmp_path / "dist" / "bin" / "postgres").read_bytes() == b"another version"


def test_reports_a_damaged_archive(layout: Layout, tmp_path: Path) -> None:
    path = write_archive(layout)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(StackError, match=f"{path.name} cannot be unpacked") as caught:
        unpack(layout, tmp_path)
    assert "make setup" in caught.value.hint


def test_reports_a_missing_archive(layout: Layout) -> None:
    with pytest.raises(StackError, match="0 archives") as caught:
        find_archive(layout)
    assert "make setup" in caught.value.hint


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("linux", "x86_64", "postgres-linux-x86_64.txz"),
        ("linux", "aarch64", "postgres-linux-arm_64.txz"),
        ("darwin", "arm64", "postgres-darwin-arm_64.txz"),
    ],
)
def test_selects_the_archive_of_this_machine(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, system: str, machine: str, name: str
) -> None:
    for item in ("linux-x86_64", "linux-arm_64", "darwin-x86_64", "darwin-arm_64"):
        write_archive(layout, f"postgres-{item}.txz")
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert find_archive(layout).name == name


def test_runs_postgresql_as_the_current_user_unless_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert postgres_user() is None


def test_reports_root_without_an_unprivileged_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(postgres_home, "UNPRIVILEGED_USER", "no-such-user-here")
    with pytest.raises(ConfigurationError, match="refuses to run as root"):
        postgres_user()


def test_keeps_files_in_the_project_without_another_user(layout: Layout) -> None:
    assert choose_home(layout, None, None) == layout.data / "postgres"


@as_root
def test_root_keeps_files_in_an_accessible_project() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        layout = Layout(Path(folder))
        layout.create()
        assert choose_home(layout, "nobody", None) == layout.data / "postgres"


@as_root
def test_root_uses_another_folder_for_an_inaccessible_project(layout: Layout) -> None:
    layout.root.chmod(0o700)
    assert choose_home(layout, "nobody", None) == layout.external_postgres_home


def test_keeps_existing_data_in_its_folder(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "before" / "data").mkdir(parents=True)
    assert choose_home(layout, None, tmp_path / "before") == tmp_path / "before"


def test_ignores_a_saved_folder_without_data(layout: Layout, tmp_path: Path) -> None:
    assert choose_home(layout, None, tmp_path / "deleted") == layout.data / "postgres"


def test_machine_has_the_unprivileged_user() -> None:
    assert pwd.getpwnam(postgres_home.UNPRIVILEGED_USER).pw_uid != 0
