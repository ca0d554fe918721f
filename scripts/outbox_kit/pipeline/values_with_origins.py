"""Merge the values of YAML files and overrides, and record the origin of each value.

The YAML parser rejects duplicate keys, aliases, and values that would take too long to parse.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from outbox_events.errors import ConfigurationError

MAX_BYTES = 500_000
# Messages of PyYAML that end with a name from the file.
PROBLEMS_WITH_NAMES = ("found undefined tag handle", "could not determine a constructor for the tag")
MAX_HINT_FILES = 5
Location = tuple[str | int, ...]
"""Keys and list indexes, from the top level to a value."""
MAX_LEVELS = 50
MAX_NUMBER_LENGTH = 40
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class LiteralText(str):
    """Text that is never expanded as an expression."""

    __slots__ = ()


@dataclass(frozen=True)
class Values:
    """YAML data, and the origin of each node: `file:line`, an option or an environment variable."""

    data: dict[str, Any]
    origins: dict[Location, str]

    def origin(self, location: Location) -> str:
        """Return the origin of the value at `location`, or of the closest parent that exists."""
        while location not in self.origins:
            location = location[:-1]
        return self.origins[location]

    def value_at(self, location: Location) -> Any:  # noqa: ANN401 - YAML data
        """Return the value at `location`, or None if it does not exist."""
        return reduce(child_value, location, self.data)

    def section(self, key: str) -> Values:
        """Return the mapping under a top-level key, or an empty mapping. Its locations are relative to the key."""
        data = self.data.get(key)
        origins = {location[1:]: origin for location, origin in self.origins.items() if location[:1] == (key,)}
        return Values(deepcopy(data) if isinstance(data, dict) else {}, {**origins, (): self.origin((key,))})

    def merged(self, overriding: Values) -> Values:
        """Return these values, overridden by `overriding`. Mappings are merged, and other values are replaced."""
        replaced = set(_replaced_locations(self.data, overriding.data, ()))
        origins = {
            location: origin
            for location, origin in self.origins.items()
            if not any(location[:length] in replaced for length in range(1, len(location) + 1))
        }
        # A mapping that exists in both sets of values keeps the origin that it has in `self`.
        added_origins = {location: origin for location, origin in overriding.origins.items() if location}
        return Values(_merge(self.data, overriding.data), {**added_origins, **origins})

    def set_value(self, location: Location, value: object, origin: str) -> None:
        """Set one value, and create missing parents. Raises LookupError if a parent cannot contain the key."""
        node: Any = self.data
        for depth, key in enumerate(location[:-1], start=1):
            if isinstance(node, dict) and key not in node:
                node[key] = {}
                self.origins[location[:depth]] = origin
            node = node[key]
            if not isinstance(node, dict | list):
                raise LookupError(".".join(map(str, location[:depth])))
        if isinstance(node, list) and not (isinstance(location[-1], int) and location[-1] < len(node)):
            raise LookupError(".".join(map(str, location[:-1])))
        node[location[-1]] = value
        for replaced_location in [key for key in self.origins if key[: len(location)] == location]:
            del self.origins[replaced_location]
        self.origins[location] = origin


def child_value(node: Any, key: object) -> Any:  # noqa: ANN401 - YAML data
    """Return the value of a key or an index, or None if it does not exist."""
    try:
        return node[key]
    except (KeyError, IndexError, TypeError):
        return None


def _replaced_locations(base: Any, overriding: Any, location: Location) -> Iterator[Location]:  # noqa: ANN401 - YAML data
    """Yield the location of each value in `base` that `overriding` replaces instead of being merged into it."""
    for key, value in overriding.items():
        if key in base:
            if isinstance(base[key], dict) and isinstance(value, dict):
                yield from _replaced_locations(base[key], value, (*location, key))
            else:
                yield (*location, key)


def _merge(base: dict[str, Any], overriding: dict[str, Any]) -> dict[str, Any]:
    merged = deepcopy(base)
    for key, value in overriding.items():
        if isinstance(merged.get(key), dict) and isinstance(value, dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = deepcopy(value)
    return merged


def read_text(path: Path, subject: str, hint: str, max_bytes: int) -> str:
    """Return the text of a file. Raises ConfigurationError with a message that begins with `subject`."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ConfigurationError(f"{subject}: not a regular file", hint)  # reading a named pipe would block
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigurationError(f"{subject}: {error.strerror}", hint) from None
    if len(content) > max_bytes:
        raise ConfigurationError(f"{subject}: larger than {max_bytes} bytes", f"reduce the file to {max_bytes} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{subject}: not UTF-8 at byte {error.start}", "save the file as UTF-8") from None


def read_mapping(path: Path) -> Values:
    """Read a YAML file whose top level is a mapping, and record the line of every key.

    Raises ConfigurationError. Its message does not quote lines of the file, because a line can contain a secret.
    """
    yaml_files = ", ".join(sorted(str(file) for file in path.parent.glob("*.yaml"))[:MAX_HINT_FILES])
    hint = "name a readable pipeline file with -p/--pipeline or OUTBOX_PIPELINE" + (
        f"; existing files: {yaml_files}" if yaml_files else ""
    )
    text = read_text(path, f"cannot read {path}", hint, MAX_BYTES)
    try:
        node, data = parse_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        column = f" at column {mark.column + 1}" if mark else ""
        if isinstance(error, LimitError):
            raise ConfigurationError(f"{path}{line}: {error.problem}", str(error.note)) from None
        message = f"{path}{line}: not valid YAML: {_problem(error)}{column}"
        hint = "correct the YAML, and quote values that begin with a symbol or contain a colon"
        raise ConfigurationError(message, hint) from None
    except yaml.reader.ReaderError as error:
        reason = f"not valid YAML: a forbidden character at offset {error.position}"
        raise ConfigurationError(f"{path}: {reason}", "remove the character") from None
    except ValueError:  # its message can contain the value
        message = f"{path}: not valid YAML: a value looks like a date or number but is not valid"
        raise ConfigurationError(message, "quote the value") from None
    if node is None or not isinstance(data, dict):
        raise ConfigurationError(f"{path}: expected a mapping, found {type(data).__name__}", "write KEY: VALUE lines")
    file_origins = {location: f"{path}:{line}" for location, line in _line_numbers(node, ())}
    return Values(data, {**file_origins, (): f"{path}:1"})


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Return the problem without the name of a tag, because a password that begins with `!` is parsed as a tag."""
    problem = str(error.problem)
    return next((text for text in PROBLEMS_WITH_NAMES if problem.startswith(text)), problem)


def _line_numbers(node: yaml.Node, location: Location) -> Iterator[tuple[Location, int]]:
    """Yield the location and the line number, counted from 1, of every key and item."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            key_location = (*location, str(key.value))
            yield key_location, key.start_mark.line + 1
            yield from _line_numbers(value, key_location)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*location, index), item.start_mark.line + 1
            yield from _line_numbers(item, (*location, index))


class LimitError(yaml.MarkedYAMLError):
    """Error for valid YAML that this module does not accept. `note` is the hint."""

    def __init__(self, problem: str, mark: yaml.Mark | None, hint: str) -> None:
        super().__init__(problem=problem, problem_mark=mark, note=hint)


def parse_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the root node and the data of a YAML text, or None and None for an empty text.

    Raises yaml.YAMLError, and ValueError for a value that looks like a date or number but is not valid.
    """
    loader = _Loader(text)
    node = loader.get_single_node()
    return node, None if node is None else loader.construct_document(node)


class _Loader(yaml.SafeLoader):
    """Loader that rejects texts that exceed a limit, and duplicate keys, whose last value PyYAML would use."""

    _level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        # A few lines with aliases of aliases can expand to billions of values.
        if self.check_event(yaml.AliasEvent):
            raise LimitError("aliases are not supported", mark, "repeat the value, or quote text that begins with `*`")
        if self._level == MAX_LEVELS:
            raise LimitError(f"values are nested over {MAX_LEVELS} levels", mark, "use fewer nested values")
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        # YAML 1.1 reads 1:1:1 as a base 60 number, and the conversion of such numbers takes quadratic time.
        if node.tag in NUMBER_TAGS and len(node.value) > MAX_NUMBER_LENGTH:
            raise LimitError(f"a number has over {MAX_NUMBER_LENGTH} digits", node.start_mark, "quote the value")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        data = super().construct_mapping(node, deep=deep)  # raises for a key that is a list or a mapping
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in keys:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark)
            keys.add(key)
        return data
