"""Components that an installation without a checkout downloads: their list, and the download from a repository."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from outbox_common.components import download as download_module
from outbox_common.components import manifest
from outbox_common.components.download import REPOSITORY_VARIABLE, DownloadError, download
from outbox_common.components.folders import cache_folder, is_checkout
from outbox_common.components.manifest import ANY_PLATFORM, Artifact
from outbox_lab import component_manifest

REPOSITORY = Path(__file__).resolve().parents[3]
# jgo does not close the response for a missing file.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def test_the_manifest_lists_what_make_setup_resolves() -> None:
    """After a change of compose/runtime, `make component-manifest` writes it."""
    if not component_manifest.RUNTIME.is_dir():
        pytest.skip("no components: run `make setup`")
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
        path = folder / "org" / "test" / name / "1" / f"{name}-1.jar"
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


def test_rejects_a_file_with_another_content(maven: Path) -> None:
    jar(maven, "b").write_text("changed")
    with pytest.raises(DownloadError, match=r"b-1\.jar has SHA-256"):
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
def test_names_an_unreachable_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, "http://127.0.0.1:9/")
    with pytest.raises(DownloadError, match="cannot be downloaded"):
        download(["kafka"], print)


def test_recognizes_a_checkout(tmp_path: Path) -> None:
    assert is_checkout(REPOSITORY)
    assert not is_checkout(tmp_path)
