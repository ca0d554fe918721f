"""Find the pipeline file of a project that has only one."""

from __future__ import annotations

from pathlib import Path

from outbox_events.errors import ConfigurationError

FOLDER = Path("connectors")


class UsageError(ConfigurationError):
    """An option of the command line is missing or wrong, so the exit code is that of wrong usage."""


def only_pipeline_file() -> Path:
    """Return the only file connectors/*.yaml of the current folder. Raises UsageError if there are none or several."""
    files = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.startswith("."))
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(map(str, files))
        raise UsageError(f"several pipeline files: {names}", f"select one of them, as in -p {files[0]}")
    hint = "change to the folder of the project, or name the file with -p/--pipeline or OUTBOX_PIPELINE"
    raise UsageError(f"no pipeline file: found no file *.yaml in {FOLDER.resolve()}", hint)
