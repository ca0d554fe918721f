"""YAML parser that rejects duplicate keys, and values that would take long to read or exhaust the memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

MAX_LEVELS = 50
MAX_NODES = 20_000
MAX_NUMBER_LENGTH = 40
MERGE_TAG = "tag:yaml.org,2002:merge"
"""YAML tag of the key `<<` in `<<: *anchor`. The mapping may override the keys of the anchor."""
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
Extent = tuple[int, int]
"""Number of nodes, and number of levels, of a node in which aliases are expanded."""


class LimitError(yaml.MarkedYAMLError):
    """A valid YAML text that exceeds a limit of this module. `note` is the hint."""

    def __init__(self, problem: str, mark: yaml.Mark | None, hint: str) -> None:
        super().__init__(problem=problem, problem_mark=mark, note=hint)


def parse(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the root node and the data of a YAML text, None and None for an empty text.

    Raises yaml.YAMLError, and ValueError for a value that has the form of a date or number but is none.
    """
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None, None
    # PyYAML expands aliases by reference, but merge keys and the code that reads the data visit every repetition.
    _check_extent(node, {})
    return node, loader.construct_document(node)


class _Loader(yaml.SafeLoader):
    """Loader that rejects duplicate keys, of which PyYAML would use the last value, and texts beyond the limits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = self._node_count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._level += 1
        self._node_count += 1
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        _refuse_beyond_limits((self._node_count, self._level), mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        if node.tag in NUMBER_TAGS and len(node.value) > MAX_NUMBER_LENGTH:
            raise LimitError(f"a number has over {MAX_NUMBER_LENGTH} digits", node.start_mark, "quote the value")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE_TAG:
                continue
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, Hashable) and key in keys:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep=deep)


def _check_extent(node: yaml.Node, extents: dict[int, Extent | None]) -> Extent:
    """Return the extent of a node. Raises LimitError. `extents` has each visited node, None for those in progress."""
    if id(node) not in extents:
        extents[id(node)] = None
        children = [_check_extent(child, extents) for child in _children(node)]
        extent = 1 + sum(count for count, _ in children), 1 + max((levels for _, levels in children), default=0)
        _refuse_beyond_limits(extent, node.start_mark)
        extents[id(node)] = extent
    known_extent = extents[id(node)]
    if known_extent is None:
        raise LimitError("a value contains an alias of itself", node.start_mark, "remove the alias")
    return known_extent


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_beyond_limits(extent: Extent, mark: yaml.Mark | None) -> None:
    node_count, levels = extent
    if levels > MAX_LEVELS:
        raise LimitError(f"values are nested over {MAX_LEVELS} levels", mark, "use fewer nested values")
    if node_count > MAX_NODES:
        problem = f"the file has over {MAX_NODES} keys and values, including repetitions by aliases"
        raise LimitError(problem, mark, "remove keys or aliases")
