"""Readers of text and YAML files."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.layered_values import Location, Values

MERGE = "tag:yaml.org,2002:merge"
"""Tag of `<<: *anchor`, whose keys the mapping may override."""
MAX_HINT_FILES = 5


def read_text(path: Path, subject: str, hint: str) -> str:
    """Return the text of a file. Raises ConfigurationError, whose message begins with `subject`."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{subject}: {error.strerror}", hint) from None
    except UnicodeDecodeError as error:
        message = f"{subject}: not UTF-8 at byte {error.start}"
        raise ConfigurationError(message, "save it as UTF-8") from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """Loader that rejects duplicate keys, of which YAML uses the last one without an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, Hashable) and key in keys:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep=deep)


def read_mapping(path: Path) -> Values:
    """Read a YAML file whose top level is a mapping, with the line of every key.

    Raises ConfigurationError, which never quotes a line of the file: it may contain a secret.
    """
    text = read_text(path, f"cannot read {path}", _other_files(path))
    try:
        loader = _UniqueKeyLoader(text)
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        column = f" at column {mark.column + 1}" if mark else ""
        raise ConfigurationError(f"{path}{line}: not valid YAML: {error.problem}{column}", "correct the file") from None
    except yaml.YAMLError:
        raise ConfigurationError(f"{path}: not valid YAML: a character that YAML forbids", "correct the file") from None
    if node is None or not isinstance(data, dict):
        raise ConfigurationError(f"{path}: expected a mapping, found {type(data).__name__}", "see docs/pipeline.md")
    lines = {location: f"{path}:{line}" for location, line in _lines(node, ())}
    return Values(data, {**lines, (): f"{path}:1"})


def _other_files(path: Path) -> str:
    names = ", ".join(sorted(str(file) for file in path.parent.glob("*.yaml"))[:MAX_HINT_FILES])
    return f"name the pipeline file with -p/--pipeline or OUTBOX_PIPELINE{f'; found {names}' if names else ''}"


def _lines(node: yaml.Node, location: Location) -> Iterator[tuple[Location, int]]:
    """Yield the line of every key and item; the first line is 1."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:  # keys of `<<` come first, those of the mapping override them
            below = (*location, str(key.value))
            yield below, key.start_mark.line + 1
            yield from _lines(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*location, index), item.start_mark.line + 1
            yield from _lines(item, (*location, index))
