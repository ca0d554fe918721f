"""Collect the files for spark-submit in one folder: `python -m outbox_spark.spark_submit_files DIR`.

outbox-spark-pyfiles.zip    for --py-files: outbox_spark, outbox_common and outbox_events
materialize.py, ...         the launchers, which are the application files of spark-submit
requirements.txt            Python packages of the driver, with hashes (executors do not need Python packages)
jars/                       for --jars, if --jars FOLDER was given
"""

from __future__ import annotations

import argparse
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import outbox_common
import outbox_events
from outbox_events.errors import ConfigurationError
from outbox_spark.commands.exit_codes import print_message, run_command

ZIP_NAME = "outbox-spark-pyfiles.zip"
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in the zip. A constant time makes the zip reproducible."""


def build(folder: Path, jars: Path | None = None) -> list[Path]:
    """Write the files into `folder` and return their paths. Raises ConfigurationError if a source is missing."""
    package = Path(__file__).resolve().parent
    launchers = sorted(package.parent.glob("*.py"))
    if not (package.parents[1] / "pyproject.toml").is_file() or not launchers:
        message = f"no launcher scripts (*.py) in {package.parent}, or no pyproject.toml in {package.parents[1]}"
        raise ConfigurationError(message, "run the command in a checkout of outbox-kit")
    jar_files = sorted(jars.glob("*.jar")) if jars else []
    if jars is not None and not jar_files:
        raise ConfigurationError(f"no jars in {jars}", "use build/runtime/spark/jars, which `make setup` fills")
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / ZIP_NAME, folder / "requirements.txt"]
    with zipfile.ZipFile(files[0], "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_zip_entries(package)):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_EPOCH), content, zipfile.ZIP_DEFLATED)
    shutil.copy(package.parents[1] / "requirements" / "spark-driver.txt", files[1])
    files += [Path(shutil.copy(path, folder / path.name)) for path in launchers]
    # Two versions of a jar on one class path would conflict.
    shutil.rmtree(folder / "jars", ignore_errors=True)
    for path in jar_files:
        (folder / "jars").mkdir(exist_ok=True)
        files.append(Path(shutil.copy(path, folder / "jars" / path.name)))
    return files


def _zip_entries(package: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file in the zip: all files of this package, outbox_common, outbox_events."""
    for folder in (package, *(Path(module.__file__ or "").parent for module in (outbox_common, outbox_events))):
        for path in [*folder.rglob("*.py"), *folder.rglob("py.typed"), *folder.rglob("manifest.txt")]:
            yield f"{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (an Exit)."""
    parser = argparse.ArgumentParser(
        prog="python -m outbox_spark.spark_submit_files", description="Collect the files for spark-submit."
    )
    parser.add_argument("folder", type=Path, help="output folder")
    parser.add_argument("--jars", type=Path, metavar="FOLDER", help="also copy the jars of this folder")
    options = parser.parse_args(arguments)

    def collect() -> int:
        files = build(options.folder, options.jars)
        print_message(f"wrote {len(files)} files to {options.folder}; see docs/scheduling.md")
        return 0

    return run_command(collect, debug=False)


if __name__ == "__main__":
    sys.exit(main())
