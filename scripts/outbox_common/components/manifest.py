"""Read the list of the files: one line for each, with checksum, size, folder, platform and Maven coordinate."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

FILE = files("outbox_common.components") / "manifest.txt"
SPARK = ("spark",)
ANY_PLATFORM = "any"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, order=True)
class Artifact:
    """A file of a Maven repository. `folder` is where it is stored or, if it is an archive, unpacked."""

    folder: str
    group: str
    name: str
    extension: str
    classifier: str
    version: str
    platform: str
    """Operating system and machine, as in linux-amd64, or ANY_PLATFORM."""
    sha256: str
    size: int

    @property
    def component(self) -> str:
        return self.folder.partition("/")[0]

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}{self.classifier and f'-{self.classifier}'}.{self.extension}"

    @property
    def line(self) -> str:
        coordinate = ":".join((self.group, self.name, self.extension, self.classifier, self.version))
        return f"{self.sha256} {self.size} {self.folder} {self.platform} {coordinate}"


def read(components: Iterable[str], file: Traversable = FILE) -> list[Artifact]:
    """Return the files of the components for this machine."""
    wanted, here = set(components), (ANY_PLATFORM, this_platform())
    artifacts = map(_parse, file.read_text(encoding="ascii").splitlines())
    return [artifact for artifact in artifacts if artifact.component in wanted and artifact.platform in here]


def this_platform() -> str:
    machine = platform.machine().lower()
    return f"{sys.platform}-{MACHINES.get(machine, machine)}"


def digest(file: Traversable = FILE) -> str:
    """Return a short name for the content of the manifest."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _parse(line: str) -> Artifact:
    sha256, size, folder, platform_name, coordinate = line.split(" ")
    group, name, extension, classifier, version = coordinate.split(":")
    return Artifact(folder, group, name, extension, classifier, version, platform_name, sha256, int(size))
