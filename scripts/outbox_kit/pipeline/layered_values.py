"""Values merged from several sources, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Location = tuple[str | int, ...]
"""Keys and list indexes from the top level down."""


class Literal(str):
    """Text that is never expanded as an expression."""

    __slots__ = ()


@dataclass(frozen=True)
class Values:
    """YAML data, and the origin of each node: `file:line`, an option, an environment variable."""

    data: dict[str, Any]
    origins: dict[Location, str]

    def origin(self, location: Location) -> str:
        """Return the origin of the value at `location`, or of the closest parent that exists."""
        while location not in self.origins:
            location = location[:-1]
        return self.origins[location]

    def at(self, location: Location) -> Any:  # noqa: ANN401 - YAML data
        """Return the value at `location`, None if there is none."""
        node: Any = self.data
        for key in location:
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                return None
        return node

    def below(self, key: str) -> Values:
        """Return the mapping under a top-level key as separate values; empty if there is none."""
        section = self.data.get(key)
        origins = {location[1:]: origin for location, origin in self.origins.items() if location[:1] == (key,)}
        return Values(deepcopy(section) if isinstance(section, dict) else {}, {**origins, (): self.origin((key,))})

    def merged(self, winner: Values) -> Values:
        """Return these values overridden by `winner`: mappings are merged, everything else is replaced."""
        origins = dict(self.origins)
        for location in _replaced(self.data, winner.data, ()):
            origins = {key: origin for key, origin in origins.items() if key[: len(location)] != location}
        # The remaining ones are mappings of both, which have their origin in the loser.
        added = {location: origin for location, origin in winner.origins.items() if location}
        return Values(_merge(self.data, winner.data), {**added, **origins})

    def put(self, location: Location, value: object, origin: str) -> None:
        """Set one value and create missing mappings above it. Raises LookupError if a value is in the way."""
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
        for known in [known for known in self.origins if known[: len(location)] == location]:
            del self.origins[known]
        self.origins[location] = origin


def _replaced(loser: Any, winner: Any, location: Location) -> Iterator[Location]:  # noqa: ANN401 - YAML data
    """Yield the locations of the loser's values that are replaced as a whole."""
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
