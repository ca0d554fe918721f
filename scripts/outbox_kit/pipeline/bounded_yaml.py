"""YAML parser that rejects duplicate keys, aliases, and values that would take long to read."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

MAX_LEVELS = 50
MAX_NUMBER_LENGTH = 40
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class LimitError(yaml.MarkedYAMLError):
    """A valid YAML text that this module does not accept. `note` is the hint."""

    def __init__(self, problem: str, mark: yaml.Mark | None, hint: str) -> None:
        super().__init__(problem=problem, problem_mark=mark, note=hint)


def parse(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the root node and the data of a YAML text, None and None for an empty text.

    Raises yaml.YAMLError, and ValueError for a value that has the form of a date or number but is none.
    """
    loader = _Loader(text)
    node = loader.get_single_node()
    return node, None if node is None else loader.construct_document(node)


class _Loader(yaml.SafeLoader):
    """Loader that rejects duplicate keys, of which PyYAML would use the last value, and texts beyond the limits."""

    _level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        # A few lines with aliases of aliases have billions of values.
        if self.check_event(yaml.AliasEvent):
            raise LimitError("aliases are not supported", mark, "repeat the value, or quote text that begins with `*`")
        if self._level == MAX_LEVELS:
            raise LimitError(f"values are nested over {MAX_LEVELS} levels", mark, "use fewer nested values")
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        # The conversion of 1:1:1, a number with base 60 in YAML 1.1, takes quadratic time.
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
