"""Write the manifest of the components from build/runtime and Maven's repository: `make component-manifest`."""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jgo.maven import MavenContext

from outbox_common.components.download import fetch
from outbox_common.components.manifest import ANY_PLATFORM, FILE, Artifact

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "build" / "runtime"
REPOSITORY = Path(os.environ.get("M2_REPO", Path.home() / ".m2" / "repository"))
"""Maven's local repository."""
POM = ROOT / "compose" / "runtime" / "pom.xml"
JAR_FOLDERS = ("connect-plugins/debezium-connector-postgres", "kafka/libs", "spark/jars")
BUILT_HERE = "outbox-spark.jar"
PLATFORMS = {
    "linux-amd64": "linux-amd64",
    "linux-arm64": "linux-arm64v8",
    "darwin-amd64": "darwin-amd64",
    "darwin-arm64": "darwin-arm64v8",
}
"""Suffixes of the artifacts of PostgreSQL by platform."""


def main() -> int:
    """Write the manifest, and print the number of its files."""
    with tempfile.TemporaryDirectory() as folder:
        artifacts = sorted([*jars(), *archives(MavenContext(repo_cache=Path(folder)))])
    Path(str(FILE)).write_text("".join(f"{artifact.line}\n" for artifact in artifacts), encoding="ascii")
    print(f"{FILE}: {len(artifacts)} files")
    return 0


def jars() -> Iterator[Artifact]:
    """Yield the jars that Maven copied, with the coordinates of the same files in Maven's local repository."""
    known: dict[str, list[Path]] = {}
    for path in REPOSITORY.rglob("*.jar"):
        known.setdefault(path.name, []).append(path)
    for folder in JAR_FOLDERS:
        for jar in sorted((RUNTIME / folder).glob("*.jar")):
            if jar.name != BUILT_HERE:
                found = next(path for path in known[jar.name] if filecmp.cmp(path, jar, shallow=False))
                *groups, name, number, _ = found.relative_to(REPOSITORY).parts
                classifier = jar.stem.removeprefix(f"{name}-{number}").removeprefix("-")
                yield Artifact(folder, ".".join(groups), name, "jar", classifier, number, ANY_PLATFORM, *_content(jar))


def archives(context: MavenContext) -> Iterator[Artifact]:
    """Yield the archives that are unpacked, in the versions of the POM, and download them for their checksums."""
    registry, postgres = version("apicurio"), version("postgres")
    wanted = [("registry", "io.apicurio", "apicurio-registry-app", "tar.gz", "all", registry, ANY_PLATFORM)]
    for platform, suffix in PLATFORMS.items():
        name = f"embedded-postgres-binaries-{suffix}"
        wanted.append(("postgres", "io.zonky.test.postgres", name, "jar", "", postgres, platform))
    for fields in wanted:
        yield Artifact(*fields, *_content(fetch(context, Artifact(*fields, "", 0))))


def version(name: str) -> str:
    """Return a version of the POM."""
    found = re.search(rf"<{name}.version>(.+)</", POM.read_text("utf-8"))
    if found is None:
        raise SystemExit(f"error: {POM} does not contain {name}.version")
    return found[1]


def _content(file: Path) -> tuple[str, int]:
    content = file.read_bytes()
    return hashlib.sha256(content).hexdigest(), len(content)


if __name__ == "__main__":
    sys.exit(main())
