"""Download the files of components from a Maven repository, and compare each with its checksum."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_common.components import manifest
from outbox_common.components.folders import cache_folder
from outbox_common.components.manifest import Artifact
from outbox_events.errors import OutboxError
from outbox_events.extras import extra

if TYPE_CHECKING:
    from jgo.maven import MavenContext

REPOSITORY_VARIABLE = "OUTBOX_MAVEN_REPOSITORY"
AT_ONCE = 4
TIMEOUT_S = 60
CHUNK = 1 << 20
MEGABYTE = 1_000_000


class DownloadError(OutboxError):
    """A file could not be downloaded, or differs from its checksum."""


def download(components: Sequence[str], report: Callable[[str], None]) -> Path:
    """Download the components that are missing, and return the folder that contains a folder for each component.

    A component appears when it is complete. After an interruption, the next call continues with the missing files.
    Raises DownloadError, and MissingExtraError if the package jgo is not installed.
    """
    folder = cache_folder()
    if any(not (folder / name).is_dir() for name in components):
        context = _maven(folder / "files")
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            for name in components:
                if not (folder / name).is_dir():
                    _download_component(context, name, folder, report)
            shutil.rmtree(context.repo_cache, ignore_errors=True)
    return folder


def _maven(folder: Path) -> MavenContext:
    with extra("outbox-kit[stack]"):
        from jgo.maven import MavenContext  # noqa: PLC0415 - imported only for a download
    mirror = os.environ.get(REPOSITORY_VARIABLE, "").rstrip("/")
    return MavenContext(repo_cache=folder, remote_repos={"mirror": mirror} if mirror else None, timeout=TIMEOUT_S)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download_component(context: MavenContext, name: str, folder: Path, report: Callable[[str], None]) -> None:
    artifacts = manifest.read([name])
    if not artifacts:
        raise DownloadError(f"there is no {name} for {manifest.this_platform()}", "use the stack in containers")
    size = sum(artifact.size for artifact in artifacts) / MEGABYTE
    report(f"downloading {name} to {folder} ({len(artifacts)} files, {size:.0f} MB)")
    unfinished = folder / f"{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files = list(pool.map(lambda artifact: _verified(context, artifact), artifacts))
    for artifact, file in zip(artifacts, files, strict=True):
        target = unfinished / Path(artifact.folder).relative_to(name)
        target.mkdir(parents=True, exist_ok=True)
        _store(file, target)
    unfinished.rename(folder / name)


def _verified(context: MavenContext, artifact: Artifact) -> Path:
    """Return the file. A file of an interrupted download differs from its checksum, and is downloaded again."""
    file = fetch(context, artifact)
    if _sha256(file) != artifact.sha256:
        file.unlink()
        file = fetch(context, artifact)
    actual = _sha256(file)
    if actual != artifact.sha256:
        file.unlink()
        message = f"{artifact.file_name} has SHA-256 {actual}; expected {artifact.sha256}"
        raise DownloadError(message, f"check the repository or mirror ({REPOSITORY_VARIABLE})")
    return file


def fetch(context: MavenContext, artifact: Artifact) -> Path:
    """Return the path of the file in the context's folder, after downloading it if it is missing."""
    component = context.project(artifact.group, artifact.name).at_version(artifact.version)
    try:
        return component.artifact(artifact.classifier, artifact.extension).resolve()
    except (OSError, RuntimeError) as error:  # errors of requests are OSErrors
        hint = f"check the connection and the proxy, or set {REPOSITORY_VARIABLE} to a mirror of Maven Central"
        raise DownloadError(f"{artifact.file_name} cannot be downloaded: {error}", hint) from error


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _store(file: Path, folder: Path) -> None:
    """Move a jar to the folder, or unpack an archive: the registry's, or the one in the jar of PostgreSQL."""
    if file.name.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")
    elif folder.name.startswith("postgres"):
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith(".txz"):
                    archive.extract(name, folder)
    else:
        shutil.move(file, folder / file.name)
