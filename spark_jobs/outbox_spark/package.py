"""What spark-submit needs, in one folder: `python -m outbox_spark.package DIR`.

outbox-spark-pyfiles.zip    for --py-files: the jobs, and what they share with the deploy tool
materialize.py, ...         the launchers: what spark-submit runs
requirements.txt            Python packages of the driver; executors need none
jars/                       for --jars, where --jars FOLDER was given
"""

from __future__ import annotations

import argparse
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata, util
from pathlib import Path

from outbox_spark.commands.options import guarded, tell
from outbox_spark.errors import ConfigurationError

ZIP_NAME = "outbox-spark-pyfiles.zip"
DRIVER_PACKAGES = ("confluent-kafka", "psycopg", "psycopg-binary", "requests", "fastavro")
"""fastavro only where schemas have references."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The same sources make the same bytes: a zip knows no earlier time."""
_SHARED = "outbox_kit.avro"


def build(folder: Path, jars: Path | None = None) -> list[Path]:
    """Write everything into `folder`; returns the files. Raises ConfigurationError when something is not there."""
    here = Path(__file__).resolve().parent
    launchers = sorted(here.parent.glob("*.py"))
    if not (here.parents[1] / "pyproject.toml").is_file() or not launchers:
        raise ConfigurationError(f"no launchers in {here.parent}", "run it in a checkout of outbox-kit")
    found = sorted(jars.glob("*.jar")) if jars else []
    if jars is not None and not found:
        raise ConfigurationError(f"no jars in {jars}", "`make setup` resolves them into build/runtime/spark/jars")
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / ZIP_NAME, folder / "requirements.txt"]
    with zipfile.ZipFile(made[0], "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_entries(here)):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), content, zipfile.ZIP_DEFLATED)
    pins = "".join(f"{name}=={metadata.version(name)}\n" for name in DRIVER_PACKAGES)
    made[1].write_text(pins, encoding="ascii")
    made += [Path(shutil.copy(path, folder / path.name)) for path in launchers]
    # Of an earlier build nothing stays: two versions of a jar on one class path are a puzzle for later.
    shutil.rmtree(folder / "jars", ignore_errors=True)
    for path in found:
        (folder / "jars").mkdir(exist_ok=True)
        made.append(Path(shutil.copy(path, folder / "jars" / path.name)))
    return made


def _entries(package: Path) -> Iterator[tuple[str, bytes]]:
    """Names in the zip and their content: this package, and of outbox_kit what it shares."""
    for path in [*package.rglob("*.py"), *package.rglob("py.typed")]:
        yield f"{package.name}/{path.relative_to(package).as_posix()}", path.read_bytes()
    spec = util.find_spec(_SHARED)
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"Python does not find {_SHARED}", "run it in a checkout of outbox-kit")
    shared = Path(spec.origin).parent
    yield "outbox_kit/__init__.py", (shared.parent / "__init__.py").read_bytes()
    for path in shared.glob("*.py"):
        yield f"outbox_kit/{shared.name}/{path.name}", path.read_bytes()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns one of command.Exit."""
    parser = argparse.ArgumentParser(
        prog="python -m outbox_spark.package", description="Build what spark-submit needs."
    )
    parser.add_argument("folder", type=Path, help="where to write it")
    parser.add_argument("--jars", type=Path, metavar="FOLDER", help="copy Spark's extra jars from there")
    options = parser.parse_args(arguments)

    def body() -> int:
        made = build(options.folder, options.jars)
        tell(f"{options.folder}: {len(made)} files; see docs/scheduling.md")
        return 0

    return guarded(body, debug=False)


if __name__ == "__main__":
    sys.exit(main())
