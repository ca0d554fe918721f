"""Write the files of a project. A file that exists is never overwritten; only `add` extends the pipeline file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.project_files import materialization_entry, pipeline_entry
from outbox_kit.pipeline.loading import load_pipeline


@dataclass(frozen=True)
class Written:
    """Paths of the files that were written, of files that already had the same text, and a diff of each other file."""

    created: list[Path]
    unchanged: list[Path]
    differing: dict[Path, str]


def write_files(folder: Path, files: Mapping[Path, str]) -> Written:
    """Write each file that does not exist yet."""
    written = Written([], [], {})
    for path, text in files.items():
        target = folder / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            written.created.append(path)
        elif target.read_text() == text:
            written.unchanged.append(path)
        else:
            written.differing[path] = "".join(_diff(path, target.read_text(), text))
    return written


def extended_pipeline(path: Path, aggregates: Sequence[AggregateTables]) -> tuple[str, str]:
    """Return the pipeline's name, and the text of its file with these aggregates added and nothing else changed.

    Raises ConfigurationError if an aggregate exists, or if the entries cannot be added as lines at the end of the
    sections.
    """
    pipeline = load_pipeline(path)
    known = pipeline.aggregates
    duplicates = [aggregate.name for aggregate in aggregates if aggregate.name in known]
    if duplicates:
        message = f"{path} already contains the aggregate {duplicates[0]}"
        raise ConfigurationError(message, "choose another name, as in --add NAME=TABLE")
    sections = {
        "aggregates": "\n".join(map(pipeline_entry, aggregates)),
        "materializations": "\n".join(map(materialization_entry, aggregates)),
    }
    text = path.read_text()
    for section, entries in sections.items():
        text = _with_entries(text, section, entries)
    if not _is_valid(text, path, {aggregate.name for aggregate in aggregates} | known.keys()):
        message = f"cannot add aggregates to {path}, because its sections are not written in the form of `outbox init`"
        raise ConfigurationError(message, f"add these lines by hand:\n{sections['aggregates']}")
    return pipeline.name, text


def _with_entries(text: str, section: str, entries: str) -> str:
    """Return the text with lines added at the end of a top-level section, which is created if it does not exist."""
    match = re.search(rf"^{section}:[^\n]*\n(?:(?:[ \t#-][^\n]*)?\n)*", text, re.MULTILINE)
    if match is None:
        return f"{text.rstrip()}\n\n{section}:\n{entries}\n"
    body = match[0].rstrip()
    return f"{text[: match.start()]}{body}\n{entries}{match[0][len(body) :] or chr(10)}{text[match.end() :]}"


def _is_valid(text: str, path: Path, expected: set[str]) -> bool:
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(text)
        try:
            pipeline = load_pipeline(copy)
        except OutboxError:
            return False
    return set(pipeline.aggregates) == expected


def _diff(path: Path, present: str, proposed: str) -> Iterator[str]:
    lines = present.splitlines(keepends=True), proposed.splitlines(keepends=True)
    return difflib.unified_diff(*lines, fromfile=str(path), tofile=f"{path} (proposed)")
