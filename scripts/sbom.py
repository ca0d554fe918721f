"""Generate a release's SBOMs in CycloneDX JSON. They omit the time and serial number, so they are reproducible."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from outbox_common.components.manifest import Artifact

PIN = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?P<marker> ; [^\\\n]+)? \\\n(?P<hashes>(?: +--hash=.*\n)+)", re.MULTILINE
)


def of_requirements(name: str, version: str, requirements: Path, jars: Iterable[Path] = ()) -> str:
    """Return the SBOM of a component that depends on the packages in a requirements file, and contains jars."""
    pins = PIN.finditer(requirements.read_text(encoding="utf-8"))
    contained = {item["bom-ref"]: item for item in map(_jar, jars)}  # plugins contain some jars twice
    return _document(name, version, [*(_package(pin) for pin in pins), *contained.values()])


def of_jars(name: str, version: str, folder: Path) -> str:
    """Return the SBOM of a component that consists of the jars in a folder."""
    return _document(name, version, [_jar(path) for path in sorted(folder.glob("*.jar"))])


def of_artifacts(name: str, version: str, artifacts: Iterable[Artifact]) -> str:
    """Return the SBOM of a component that consists of artifacts with known coordinates and checksums."""
    return _document(
        name, version, [_maven(item.group, item.name, item.version, item.classifier, item.sha256) for item in artifacts]
    )


def _document(name: str, version: str, components: list[dict[str, object]]) -> str:
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": name, "name": name, "version": version}},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [item["bom-ref"] for item in components]}],
    }
    return json.dumps(document, indent=2) + "\n"


def _package(pin: re.Match[str]) -> dict[str, object]:
    """Describe a Python package, including the hashes of its sdist and of its wheels for all platforms."""
    purl = f"pkg:pypi/{pin['name']}@{pin['version']}"
    # A package with an environment marker is not installed on every platform.
    scope = "optional" if pin["marker"] else "required"
    return _component(purl, pin["name"], pin["version"], re.findall(r"sha256:(\w+)", pin["hashes"])) | {"scope": scope}


def _jar(path: Path) -> dict[str, object]:
    """Describe a jar by the Maven coordinates in its pom.properties."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"META-INF/maven/.*/pom\.properties", name)]
        if len(names) != 1:
            raise SystemExit(f"error: {path} contains {len(names)} pom.properties files instead of one")
        lines = archive.read(names[0]).decode().splitlines()
    maven = dict(line.split("=", 1) for line in lines if "=" in line)
    group, artifact, version = maven["groupId"], maven["artifactId"], maven["version"]
    classifier = path.stem.removeprefix(f"{artifact}-{version}").removeprefix("-")
    return _maven(group, artifact, version, classifier, hashlib.sha256(path.read_bytes()).hexdigest())


def _maven(group: str, artifact: str, version: str, classifier: str, sha256: str) -> dict[str, object]:
    purl = f"pkg:maven/{group}/{artifact}@{version}" + (f"?classifier={classifier}" if classifier else "")
    return _component(purl, artifact, version, [sha256]) | {"group": group}


def _component(purl: str, name: str, version: str, sha256: list[str]) -> dict[str, object]:
    hashes = [{"alg": "SHA-256", "content": content} for content in sha256]
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes}
