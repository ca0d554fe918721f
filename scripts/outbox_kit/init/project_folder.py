"""Write the files of a project. A file that exists is never overwritten; only `add` extends the pipeline file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.project_files import materialization_entry, pipeline_entry
from outbox_kit.pipeline import Pipeline, load_pipeline

SECTIONS = {"aggregates": pipeline_entry, "materializations": materialization_entry}


@dataclass(frozen=True)
class Written:
    """Paths of the files that were written, and a diff of each file that has other content and was not changed."""

    created: list[Path]
    differing: dict[Path, str]


def write_files(folder: Path, files: Mapping[Path, str]) -> Written:
    """Write each file that does not exist yet. Raises ConfigurationError before the first file is written."""
    present = {path: _read_present(folder / path) for path in files}
    created = [path for path, text in present.items() if text is None]
    differing = {
        path: "".join(_diff(path, text, files[path]))
        for path, text in present.items()
        if text is not None and text.splitlines() != files[path].splitlines()
    }
    for path in created:
        with _file_errors(folder / path):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(files[path], encoding="utf-8")
    return Written(created, differing)


def extended_pipeline(path: Path, aggregates: Sequence[AggregateTables]) -> tuple[Pipeline, str]:
    """Return the pipeline, and the text of its file with these aggregates added and nothing else changed.

    Raises ConfigurationError if an aggregate exists, or if the entries cannot be added as lines at the end of the
    sections.
    """
    pipeline = load_pipeline(path)
    duplicates = [aggregate.name for aggregate in aggregates if aggregate.name in pipeline.aggregates]
    if duplicates:
        message = f"{path} already contains the aggregate {duplicates[0]}"
        raise ConfigurationError(message, "choose another name, as in --add NAME=TABLE")
    entries = {section: "\n".join(map(entry, aggregates)) for section, entry in SECTIONS.items()}
    text = path.read_bytes().decode()
    line_end = "\r\n" if "\r\n" in text else "\n"
    extended = text.replace("\r\n", "\n")
    for section, lines in entries.items():
        extended = _with_entries(extended, section, lines)
    extended = extended.replace("\n", line_end)
    if not _is_extension(extended, path, [aggregate.name for aggregate in aggregates]):
        message = f"cannot add aggregates to {path}, because its sections are not written in the form of `outbox init`"
        lines_by_hand = "\n".join(f"{section}:\n{lines}" for section, lines in entries.items())
        raise ConfigurationError(message, f"add these lines by hand:\n{lines_by_hand}")
    return pipeline, extended


def _with_entries(text: str, section: str, entries: str) -> str:
    """Return the text with lines added at the end of a top-level section, which is created if it does not exist."""
    lines = text.rstrip("\n").split("\n")
    start = next((number for number, line in enumerate(lines) if line.startswith(f"{section}:")), None)
    if start is None:
        return "\n".join([*lines, "", f"{section}:", entries, ""])
    end = start + 1
    for number, line in enumerate(lines[start + 1 :], start=start + 1):
        if line.strip() and line[0] in " \t-":
            end = number + 1
        elif line.strip() and line[0] != "#":  # comments above the next section belong to that section
            break
    return "\n".join([*lines[:end], entries, *lines[end:], ""])


def _is_extension(text: str, path: Path, names: list[str]) -> bool:
    """Return whether the text is that of the pipeline file with these aggregates added, and nothing else changed."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "connectors" / path.name  # relative paths must have the same meaning in both files
        copy.parent.mkdir()
        try:
            before, after = (_load(copy, content) for content in (path.read_bytes(), text.encode()))
        except OutboxError:
            return False
    added = list(after.aggregates)[len(before.aggregates) :]
    kept = {name: after.aggregates[name] for name in after.aggregates if name not in names}
    tables = after.materializations[: len(before.materializations)]
    return added == names and after.model_copy(update={"aggregates": kept, "materializations": tables}) == before


def _load(path: Path, content: bytes) -> Pipeline:
    path.write_bytes(content)
    return load_pipeline(path)


def _read_present(path: Path) -> str | None:
    """Return the text of a file; None if there is no file."""
    with _file_errors(path):
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            if path.is_symlink():
                raise ConfigurationError(f"{path} is a link to a file that does not exist", "remove the link") from None
            return None


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read or write {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        raise ConfigurationError(message, "use another folder, or remove this file") from None


def _diff(path: Path, present: str, proposed: str) -> Iterator[str]:
    lines = present.splitlines(keepends=True), proposed.splitlines(keepends=True)
    return difflib.unified_diff(*lines, fromfile=str(path), tofile=f"{path} (proposed)")
