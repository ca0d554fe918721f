"""Reads text and YAML files; what cannot be read says why and what to do."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.layered_values import Location, Values

MERGE = "tag:yaml.org,2002:merge"
"""`<<: *anchor`: keys of the anchor, which those of the mapping win over."""
NAMED = 5
"""Files in a hint."""


def read_text(path: Path, subject: str, hint: str) -> str:
    """The text of a file. Raises ConfigurationError, which begins with `subject`."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{subject}: {error.strerror}", hint) from None
    except UnicodeDecodeError as error:
        message = f"{subject}: not UTF-8 at byte {error.start}"
        raise ConfigurationError(message, "save it as UTF-8") from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice: YAML keeps the last one, and the other would vanish without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_mapping(path: Path) -> Values:
    """A YAML file whose top level is a mapping, with the line of every key.

    Raises ConfigurationError, which never quotes a line: it may hold a secret.
    """
    text = read_text(path, f"cannot read {path}", _other_files(path))
    try:
        loader = _UniqueKeyLoader(text)
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}" if mark else ""
        column = f" at column {mark.column + 1}" if mark else ""
        raise ConfigurationError(
            f"{path}{where}: not valid YAML: {error.problem}{column}", "correct the file"
        ) from None
    except yaml.YAMLError:
        raise ConfigurationError(f"{path}: not valid YAML: a character that YAML forbids", "correct the file") from None
    if node is None or not isinstance(data, dict):
        raise ConfigurationError(f"{path}: expected a mapping, found {type(data).__name__}", "see docs/pipeline.md")
    lines = {location: f"{path}:{line}" for location, line in _lines(node, ())}
    return Values(data, {**lines, (): f"{path}:1"})


def _other_files(path: Path) -> str:
    there = ", ".join(sorted(str(file) for file in path.parent.glob("*.yaml"))[:NAMED])
    return f"name the pipeline file with -p/--pipeline or OUTBOX_PIPELINE{f'; there is {there}' if there else ''}"


def _lines(node: yaml.Node, location: Location) -> Iterator[tuple[Location, int]]:
    """Line of every key and every item, the first being 1."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:  # what `<<` brings stands before the mapping's own, which wins
            below = (*location, str(key.value))
            yield below, key.start_mark.line + 1
            yield from _lines(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*location, index), item.start_mark.line + 1
            yield from _lines(item, (*location, index))
