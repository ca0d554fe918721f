"""Values of several sources put together, each with the place that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Location = tuple[str | int, ...]
"""Keys, and indexes of lists, from the top level down."""


class Literal(str):
    """A text that is taken as it is, whatever braces stand in it."""

    __slots__ = ()


@dataclass(frozen=True)
class Values:
    """YAML data, and where each part of it stands: `file:line`, an option, an environment variable."""

    data: dict[str, Any]
    origins: dict[Location, str]

    def origin(self, location: Location) -> str:
        """Where the value at `location` stands; of one that is missing, what it is missing from."""
        while location not in self.origins:
            location = location[:-1]
        return self.origins[location]

    def at(self, location: Location) -> Any:  # noqa: ANN401 - YAML data
        """The value at `location`, None where there is none."""
        node: Any = self.data
        for part in location:
            try:
                node = node[part]
            except (KeyError, IndexError, TypeError):
                return None
        return node

    def below(self, key: str) -> Values:
        """The mapping under a top-level key as values of its own; empty where there is none."""
        found = self.data.get(key)
        origins = {location[1:]: origin for location, origin in self.origins.items() if location[:1] == (key,)}
        return Values(deepcopy(found) if isinstance(found, dict) else {}, {**origins, (): self.origin((key,))})

    def merged(self, winner: Values) -> Values:
        """These values with those of `winner` over them: mappings are merged, everything else is replaced."""
        origins = dict(self.origins)
        for location in _replaced(self.data, winner.data, ()):
            origins = {key: origin for key, origin in origins.items() if key[: len(location)] != location}
        # What is left are mappings that both have: each is where the loser has it.
        added = {location: origin for location, origin in winner.origins.items() if location}
        return Values(_merge(self.data, winner.data), {**added, **origins})

    def put(self, location: Location, value: object, origin: str) -> None:
        """Set one value; mappings on the way to it are made. Raises LookupError where the way ends in a value."""
        node: Any = self.data
        for depth, part in enumerate(location[:-1], start=1):
            if isinstance(node, dict) and part not in node:
                node[part] = {}
                self.origins[location[:depth]] = origin
            node = node[part]
            if not isinstance(node, dict | list):
                raise LookupError(".".join(map(str, location[:depth])))
        if isinstance(node, list) and not (isinstance(location[-1], int) and location[-1] < len(node)):
            raise LookupError(".".join(map(str, location[:-1])))
        node[location[-1]] = value
        for known in [known for known in self.origins if known[: len(location)] == location]:
            del self.origins[known]
        self.origins[location] = origin


def _replaced(loser: Any, winner: Any, location: Location) -> Iterator[Location]:  # noqa: ANN401 - YAML data
    """Where a value of the loser gives way as a whole."""
    for key, value in winner.items():
        if key in loser:
            if isinstance(loser[key], dict) and isinstance(value, dict):
                yield from _replaced(loser[key], value, (*location, key))
            else:
                yield (*location, key)


def _merge(loser: dict[str, Any], winner: dict[str, Any]) -> dict[str, Any]:
    merged = deepcopy(loser)
    for key, value in winner.items():
        if isinstance(merged.get(key), dict) and isinstance(value, dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = deepcopy(value)
    return merged
