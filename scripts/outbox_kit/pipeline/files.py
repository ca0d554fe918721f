"""Reads text and YAML files; what cannot be read says why and what to do."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from outbox_kit.errors import ConfigurationError


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
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping.

    Raises ConfigurationError, which never quotes a line: it may hold a secret.
    """
    text = read_text(path, f"cannot read {path}", "name the pipeline file with -p/--pipeline")
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1} column {mark.column + 1}" if mark else ""
        raise ConfigurationError(f"{path}: not valid YAML: {error.problem}{where}", "correct the file") from None
    except yaml.YAMLError:
        raise ConfigurationError(f"{path}: not valid YAML: a character that YAML forbids", "correct the file") from None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path}: expected a mapping, found {type(data).__name__}", "see docs/pipeline.md")
    return data
