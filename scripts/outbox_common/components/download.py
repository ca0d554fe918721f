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
from urllib.parse import urlsplit

from outbox_common.components import manifest
from outbox_common.components.folders import cache_folder
from outbox_common.components.manifest import Artifact
from outbox_events.errors import ConfigurationError, OutboxError

if TYPE_CHECKING:
    from jgo.maven import MavenContext

REPOSITORY_VARIABLE = "OUTBOX_MAVEN_REPOSITORY"
AT_ONCE = 4
TIMEOUT_S = 60
MEGABYTE = 1_000_000
Report = Callable[[str], None]


class DownloadError(OutboxError):
    """A file could not be downloaded or stored, or differs from its checksum."""


def download(components: Sequence[str], report: Report) -> Path:
    """Download the components that are missing, and return the folder that contains a folder for each component.

    A component appears when it is complete. After an interruption, the next call continues with the missing files.
    Raises DownloadError, and ConfigurationError if the package jgo is not installed.
    """
    folder = cache_folder()
    missing = [name for name in components if not _is_complete(folder, name)]
    if not missing:
        return folder
    context = _maven(folder / "files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock", report):
            for name in missing:
                if not _is_complete(folder, name):
                    shutil.rmtree(folder / name, ignore_errors=True)
                    _download_component(context, name, folder, report)
            shutil.rmtree(context.repo_cache, ignore_errors=True)
    except OSError as error:
        hint = "free the disk, or set XDG_CACHE_HOME to a folder that you can write to"
        raise DownloadError(f"files cannot be stored in {folder}: {error.strerror or error}", hint) from error
    return folder


def _is_complete(folder: Path, name: str) -> bool:
    """Return whether the component exists, and no jar of it was deleted or truncated."""
    jars = [artifact for artifact in manifest.read([name]) if not _is_archive(artifact)]
    files = ((folder / artifact.folder / artifact.file_name, artifact.size) for artifact in jars)
    return (folder / name).is_dir() and all(file.is_file() and file.stat().st_size == size for file, size in files)


def _is_archive(artifact: Artifact) -> bool:
    return artifact.extension == "tar.gz" or artifact.component == "postgres"


def _maven(folder: Path) -> MavenContext:
    try:
        from jgo.maven import MavenContext  # noqa: PLC0415 - part of the extras that need it
    except ImportError:
        hint = "run `pip install jgo`, which is part of the extras `stack` and `spark` of outbox-kit"
        raise ConfigurationError("the package jgo, which downloads jars, is not installed", hint) from None
    mirror = os.environ.get(REPOSITORY_VARIABLE, "").rstrip("/")
    return MavenContext(repo_cache=folder, remote_repos={"mirror": mirror} if mirror else None, timeout=TIMEOUT_S)


@contextmanager
def _locked(file: Path, report: Report) -> Iterator[None]:
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another download to {file.parent}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download_component(context: MavenContext, name: str, folder: Path, report: Report) -> None:
    artifacts = manifest.read([name])
    if not artifacts:
        raise DownloadError(f"there is no {name} for {manifest.this_platform()}", "use the stack in containers")
    size = sum(artifact.size for artifact in artifacts) / MEGABYTE
    report(f"downloading {name} to {folder} ({len(artifacts)} files, {size:.0f} MB)")
    unfinished = folder / f"{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            files = list(pool.map(lambda artifact: _verified(context, artifact), artifacts))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for artifact, file in zip(artifacts, files, strict=True):
        target = unfinished / Path(artifact.folder).relative_to(name)
        target.mkdir(parents=True, exist_ok=True)
        _store(artifact, file, target)
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
        message = f"{artifact.file_name} of {_host(context)} has SHA-256 {actual}; expected {artifact.sha256}"
        raise DownloadError(message, f"use another repository or mirror ({REPOSITORY_VARIABLE})")
    return file


def fetch(context: MavenContext, artifact: Artifact) -> Path:
    """Return the path of the file in the context's folder, after downloading it if it is missing."""
    from requests import RequestException  # noqa: PLC0415 - jgo requires it

    component = context.project(artifact.group, artifact.name).at_version(artifact.version)
    try:
        return component.artifact(artifact.classifier, artifact.extension).resolve()
    except RequestException as error:
        reason, hint = type(error).__name__, "check the connection and the proxy (HTTPS_PROXY)"
    except OSError:
        raise
    except Exception:  # jgo raises RuntimeError for each response other than 200
        reason, hint = "not found, or not permitted", "check the address of the repository"
    message = f"{artifact.file_name} cannot be downloaded from {_host(context)}: {reason}"
    raise DownloadError(message, f"{hint}, or set {REPOSITORY_VARIABLE} to another mirror of Maven Central")


def _host(context: MavenContext) -> str:
    """Return the host of the repository. Its address can contain a password."""
    return ", ".join(urlsplit(address).hostname or "?" for address in context.remote_repos.values())


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _store(artifact: Artifact, file: Path, folder: Path) -> None:
    """Move a jar to the folder, or unpack an archive: the registry's, or the one in the jar of PostgreSQL."""
    if not _is_archive(artifact):
        shutil.move(file, folder / file.name)
    elif artifact.extension == "tar.gz":
        extract_tar(file, folder)
    else:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith(".txz"):
                    archive.extract(name, folder)


def extract_tar(file: Path, folder: Path) -> None:
    """Unpack a trusted archive. Raises TarError, LZMAError or EOFError if it is damaged."""
    with tarfile.open(file) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)  # noqa: S202 - resolved by Maven, or compared with its checksum
