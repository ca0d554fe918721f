#!/usr/bin/env python3
"""Build the files of release V in dist/ (`make dist`). Builds from the same sources are identical.

outbox_events-V-py3-none-any.whl   the library for services, and outbox_events-V.tar.gz with its sources
outbox_kit-V-py3-none-any.whl      the commands, which require the library, and outbox_kit-V.tar.gz
outbox-kit-requirements-V.txt      for `pip install --require-hashes`: the dependencies of the commands
outbox-events-requirements-V.txt   the same for services: the dependencies of the library with the extras kafka and avro
outbox-smt-V.zip                   the transforms, to unpack into a folder of a worker's plugin.path
outbox-avro-converter-V.zip        the converter for the template outbox-postgres-chain, to unpack into plugin.path
outbox-spark-pyfiles-V.zip         for spark-submit --py-files
outbox-spark-launchers-V.zip       the scripts for spark-submit, and requirements.txt for the driver
outbox-spark-jars-V.zip            all jars for spark-submit --jars
outbox-...-V.cdx.json              SBOMs of the wheels, the plugins, the jars and the driver, in CycloneDX JSON
SHA256SUMS                         for `sha256sum --check`
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sbom
from outbox_common.components import manifest
from outbox_kit import __version__
from outbox_spark.spark_submit_files import ZIP_NAME
from outbox_spark.spark_submit_files import build as build_spark

ROOT = Path(__file__).resolve().parent.parent
PLUGINS_FOLDER = ROOT / "smt" / "target" / "plugin"
SPARK_JARS_FOLDER = ROOT / "build" / "runtime" / "spark" / "jars"
REQUIREMENTS_FOLDER = ROOT / "requirements"
PYTHON_REQUIREMENTS = (("outbox-kit", "commands.txt"), ("outbox-events", "events.txt"))
LAUNCHERS_NAME, SPARK_JARS_NAME = "outbox-spark-launchers", "outbox-spark-jars"
BUILD_TIMEOUT_S = 600
REGULAR_FILE_MODE = 0o100644
EARLIEST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""Earliest time that a zip file can represent. All entries use this time, so that builds are reproducible."""


def main() -> None:
    """Delete dist/, and build all files of a release in a new dist/ folder."""
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for project in (ROOT / "scripts" / "outbox_events", ROOT):
        build_wheel_and_sdist(project, folder)
    for name, requirements in PYTHON_REQUIREMENTS:
        shutil.copy(REQUIREMENTS_FOLDER / requirements, folder / f"{name}-requirements-{__version__}.txt")
    for plugin in plugins():
        pack(plugin, folder / f"{plugin.name}-{__version__}.zip", plugin.name)
    with tempfile.TemporaryDirectory() as temporary_folder:
        launchers = Path(temporary_folder) / LAUNCHERS_NAME
        build_spark(launchers)
        shutil.move(launchers / ZIP_NAME, folder / f"outbox-spark-pyfiles-{__version__}.zip")
        pack(launchers, folder / f"{LAUNCHERS_NAME}-{__version__}.zip", LAUNCHERS_NAME)
    pack(SPARK_JARS_FOLDER, folder / f"{SPARK_JARS_NAME}-{__version__}.zip", SPARK_JARS_NAME)
    write_sboms(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    checksums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text(checksums, encoding="ascii")
    for path in files:
        print(f"{path.stat().st_size:>10}  dist/{path.name}")


def build_wheel_and_sdist(project: Path, folder: Path) -> None:
    """Build the wheel and the sdist of `project` in `folder`. Exit with an error if the build fails."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    result = subprocess.run(command, cwd=project, timeout=BUILD_TIMEOUT_S, check=False, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(
            f"error: cannot build the wheel and the source distribution of {project}\n{result.stdout}{result.stderr}"
        )


def plugins() -> list[Path]:
    """Return the folders of the Connect plugins."""
    return sorted(path for path in PLUGINS_FOLDER.iterdir() if path.is_dir())


def write_sboms(folder: Path) -> None:
    """Write an SBOM for each released file that has dependencies."""
    documents = {plugin.name: sbom.of_jars(plugin.name, __version__, plugin) for plugin in plugins()}
    documents[SPARK_JARS_NAME] = sbom.of_artifacts(SPARK_JARS_NAME, __version__, manifest.read(manifest.SPARK))
    for name, requirements in (*PYTHON_REQUIREMENTS, (LAUNCHERS_NAME, "spark-driver.txt")):
        jars = sorted(PLUGINS_FOLDER.rglob("*.jar")) if name == "outbox-kit" else ()
        documents[name] = sbom.of_requirements(name, __version__, REQUIREMENTS_FOLDER / requirements, jars)
    for name, text in documents.items():
        (folder / f"{name}-{__version__}.cdx.json").write_text(text, encoding="utf-8")


def pack(folder: Path, archive: Path, name: str) -> None:
    """Pack the files in a folder `name`, because Connect expects each plugin in a subfolder of plugin.path."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(f"{name}/{path.relative_to(folder).as_posix()}", EARLIEST_ZIP_TIME)
                # Make the file readable by all users, because the worker might not run as the owner of the file.
                entry.external_attr = REGULAR_FILE_MODE << 16
                zip_file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
