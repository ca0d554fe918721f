"""Components that an installation without a checkout downloads: their list, and the download from a repository."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tests.conftest import REPOSITORY

from outbox_common.components import download as download_module
from outbox_common.components import manifest
from outbox_common.components.download import REPOSITORY_VARIABLE, DownloadError, download
from outbox_common.components.folders import cache_folder, is_checkout
from outbox_common.components.manifest import ANY_PLATFORM, Artifact
from outbox_events.errors import ConfigurationError
from outbox_lab import component_manifest

# jgo does not close the response for a missing file.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def test_the_manifest_lists_what_make_setup_resolves() -> None:
    """After a change of compose/runtime, `make component-manifest` writes it."""
    if not component_manifest.RUNTIME.is_dir() or not component_manifest.REPOSITORY.is_dir():
        pytest.skip("no components or no Maven repository: run `make setup`")
    listed = manifest.read(["connect-plugins", "kafka", "spark"])
    assert sorted(listed) == sorted(component_manifest.jars())
    assert {artifact.version for artifact in manifest.read(["postgres"])} == {component_manifest.version("postgres")}
    assert {artifact.version for artifact in manifest.read(["registry"])} == {component_manifest.version("apicurio")}


def test_there_is_one_postgres_for_this_platform() -> None:
    assert len(manifest.read(["postgres"])) == 1


class Handler(SimpleHTTPRequestHandler):
    requested: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requested.append(self.path.rpartition("/")[2])
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a repository with the jars a-1.jar and b-1.jar of the component `kafka`, and yield its folder."""
    folder = tmp_path / "repository"
    lines = []
    for name in ("a", "b"):
        path = jar(folder, name)
        path.parent.mkdir(parents=True)
        path.write_text(f"jar {name}")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(Artifact("kafka/libs", "org.test", name, "jar", "", "1", ANY_PLATFORM, digest, 5).line)
    listed = tmp_path / "manifest.txt"
    listed.write_text("\n".join(lines))
    monkeypatch.setattr(download_module.manifest, "read", partial(manifest.read, file=listed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Handler.requested.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    monkeypatch.setenv(REPOSITORY_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def jar(folder: Path, name: str) -> Path:
    return folder / "org" / "test" / name / "1" / f"{name}-1.jar"


def test_downloads_a_component_once(maven: Path) -> None:
    messages: list[str] = []
    folder = download(["kafka"], messages.append)
    assert folder == cache_folder()
    assert {path.name for path in (folder / "kafka" / "libs").iterdir()} == {"a-1.jar", "b-1.jar"}
    assert "downloading kafka" in messages[0]
    shutil.rmtree(maven)
    assert download(["kafka"], messages.append) == folder
    assert len(messages) == 1


def test_downloads_a_component_again_if_a_jar_is_damaged(maven: Path) -> None:
    del maven
    file = download(["kafka"], print) / "kafka" / "libs" / "a-1.jar"
    file.write_text("")
    assert download(["kafka"], print)
    assert file.read_text() == "jar a"


def test_rejects_a_file_with_another_content(maven: Path) -> None:
    jar(maven, "b").write_text("changed")
    with pytest.raises(DownloadError, match=r"b-1\.jar of 127\.0\.0\.1 has SHA-256"):
        download(["kafka"], print)
    assert not (cache_folder() / "kafka").exists()
    jar(maven, "b").write_text("jar b")
    download(["kafka"], print)


def test_continues_after_an_interruption(maven: Path) -> None:
    """A file that was not written completely is downloaded again, and the others are not."""
    saved = jar(maven, "b").read_text()
    jar(maven, "b").unlink()
    with pytest.raises(DownloadError, match=r"b-1\.jar cannot be downloaded") as caught:
        download(["kafka"], print)
    assert REPOSITORY_VARIABLE in caught.value.hint
    jar(maven, "b").write_text(saved)
    partial_file = jar(cache_folder() / "files", "b")
    partial_file.parent.mkdir(parents=True)
    partial_file.write_text("ja")
    Handler.requested.clear()
    download(["kafka"], print)
    assert (cache_folder() / "kafka" / "libs" / "b-1.jar").read_text() == saved
    assert [name for name in Handler.requested if name.endswith(".jar")] == ["b-1.jar"]


@pytest.mark.usefixtures("maven")
def test_names_an_unreachable_repository_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, "http://user:secret@127.0.0.1:9/")
    with pytest.raises(DownloadError, match=r"cannot be downloaded from 127\.0\.0\.1: ConnectionError") as caught:
        download(["kafka"], print)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.usefixtures("maven")
def test_names_a_folder_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=f"cannot be stored in {tmp_path}/file/") as caught:
        download(["kafka"], print)
    assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.usefixtures("maven")
def test_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(ConfigurationError, match="jgo") as caught:
        download(["kafka"], print)
    assert "pip install" in caught.value.hint


def test_a_second_start_waits_for_the_first(maven: Path) -> None:
    """Both return a complete component, and each file is downloaded once."""
    del maven
    messages: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(lambda _: download(["kafka"], messages.append), range(2)))
    assert len({*folders}) == 1
    assert sorted(name for name in Handler.requested if name.endswith(".jar")) == ["a-1.jar", "b-1.jar"]


@pytest.mark.parametrize(("component", "extension"), [("registry", "tar.gz"), ("postgres", "jar")])
def test_unpacks_archives(tmp_path: Path, component: str, extension: str) -> None:
    (tmp_path / "server.txz").write_text("content")
    file = tmp_path / f"a-1.{extension}"
    if extension == "jar":
        with zipfile.ZipFile(file, "w") as archive:
            archive.write(tmp_path / "server.txz", "server.txz")
            archive.writestr("META-INF/MANIFEST.MF", "")
    else:
        with tarfile.open(file, "w:gz") as tar:
            tar.add(tmp_path / "server.txz", "server.txz")
    artifact = Artifact(component, "org.test", "a", extension, "", "1", ANY_PLATFORM, "", 0)
    (tmp_path / "out").mkdir()
    download_module._store(artifact, file, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["server.txz"]


def test_an_unknown_machine_has_no_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest.platform, "machine", lambda: "riscv64")
    assert manifest.read(["postgres"]) == []
    assert manifest.read(["kafka"])


def test_ignores_a_relative_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_folder().is_absolute()


def test_recognizes_a_checkout(tmp_path: Path) -> None:
    assert is_checkout(REPOSITORY)
    assert not is_checkout(tmp_path)
