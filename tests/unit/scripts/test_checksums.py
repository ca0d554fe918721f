"""Each pip and Maven command checks the checksums of its downloads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CHECKING = (
    {"--require-hashes", "--only-binary=:all:"},
    # pip does not check the hashes of packages that it installs into isolated build environments.
    {"--require-hashes", "--no-build-isolation"},
    {"--no-deps", "--no-index"},
    {"--no-deps", "--no-build-isolation", "-e", "."},
)
"""Options with which pip either checks the hash of each download or does not download anything."""


def unchecked(commands: list[list[str]]) -> list[list[str]]:
    """Return the pip commands that may download a file without checking its hash."""
    downloading = [words for words in commands if "pip" in words and "hash" not in words]
    assert downloading
    return [words for words in downloading if not any(options <= set(words) for options in CHECKING)]


def test_make_checks_hashes() -> None:
    done = subprocess.run(
        ["make", "-n", "-B", "build/stamps/venv", "requirements"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert unchecked([line.split() for line in done.stdout.splitlines() if " pip install " in line]) == []


FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*"hatchling build"*) for folder; do :; done; mkdir -p "$folder" && touch "$folder/outbox_kit-1-py3-none-any.whl" ;;
*"pip hash"*) echo "--hash=sha256:00" ;;
*"--target build/images/tools"*) mkdir -p build/images/tools/bin && touch build/images/tools/bin/outbox ;;
esac
"""


def test_image_build_checks_hashes(tmp_path: Path) -> None:
    (tmp_path / "scripts" / "outbox_events").mkdir(parents=True)
    script = shutil.copy(ROOT / "scripts" / "image-python.sh", tmp_path / "scripts")
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(FAKE_PYTHON, encoding="utf-8")
    python.chmod(0o755)
    subprocess.run(["sh", str(script), str(python)], env={**os.environ, "LOG": str(log)}, check=True)
    assert unchecked([line.split() for line in log.read_text(encoding="utf-8").splitlines()]) == []


# --- Maven

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  {}
  <packaging>pom</packaging>
</project>
"""
COORDINATES = "<groupId>test</groupId><artifactId>base</artifactId><version>1</version>"
SETTINGS = """\
<settings>
  <mirrors><mirror><id>test</id><mirrorOf>*</mirrorOf><url>{}</url></mirror></mirrors>
</settings>
"""


def test_maven_rejects_a_wrong_checksum(tmp_path: Path) -> None:
    """Run Maven with this repository's .mvn/ on a module whose parent POM has a wrong checksum in the repository."""
    parent = tmp_path / "repository" / "test" / "base" / "1" / "base-1.pom"
    parent.parent.mkdir(parents=True)
    parent.write_text(POM.format(COORDINATES), encoding="utf-8")
    Path(f"{parent}.sha1").write_text("0" * 40, encoding="ascii")
    (tmp_path / "settings.xml").write_text(SETTINGS.format(parent.parents[3].as_uri()), encoding="utf-8")
    (tmp_path / "module").mkdir()
    child = f"<parent>{COORDINATES}<relativePath/></parent><artifactId>child</artifactId>"
    (tmp_path / "module" / "pom.xml").write_text(POM.format(child), encoding="utf-8")
    shutil.copytree(ROOT / ".mvn", tmp_path / ".mvn")
    command = ["mvn", "-q", "-B", "-s", "settings.xml", f"-Dmaven.repo.local={tmp_path / 'local'}"]
    done = subprocess.run(
        [*command, "-f", "module/pom.xml", "validate"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Checksum validation failed" in done.stdout


def test_no_folder_overrides_the_options_of_maven() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in tracked if ".mvn/" in name] == [".mvn/maven.config"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"--lax-checksums|mvn\b.* -c ", makefile)
