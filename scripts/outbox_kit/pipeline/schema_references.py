"""Schemas that use named types of other files: their order, and one text with every type in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outbox_common.avro_schema import inline
from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.avro import read_definition, read_schema, used_and_defined
from outbox_kit.pipeline.model import Aggregate


@dataclass(frozen=True)
class NamedSchema:
    """One file of a named type, as it is registered: other types stand in it by name."""

    name: str
    text: str
    path: Path
    uses: tuple[str, ...] = ()
    """Names of the references that it needs itself."""


def read_references(aggregate: Aggregate) -> list[NamedSchema]:
    """The references that the aggregate's schema needs, each after those that it needs itself.

    What is listed and not used is left out. Raises ConfigurationError for a name that no file defines or two
    define, for files that need each other, and for a file that is missing or wrong.
    """
    return _Resolver(aggregate).resolved()[:-1]


def registered(aggregate: Aggregate) -> NamedSchema:
    """The aggregate's own schema as it is registered, types of its references by name. Raises ConfigurationError."""
    return _Resolver(aggregate).resolved()[-1]


def inlined(aggregate: Aggregate) -> str:
    """The aggregate's schema with every type of its references written out where it is first used.

    The text that the transform and the Spark job work with: neither asks a registry. Raises ConfigurationError.
    """
    *references, own = _Resolver(aggregate).resolved()
    return inline(own.text, [reference.text for reference in references])


class _Resolver:
    """The files of one aggregate, read once, and the order that their names give."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._main = aggregate.schema_path
        self._paths = [path for path in dict.fromkeys(aggregate.references) if path != self._main]
        self._definitions = {path: read_definition(path) for path in [*self._paths, self._main]}
        self._names = {path: used_and_defined(found) for path, found in self._definitions.items()}
        self._owners = dict(self._owned())
        self._refuse_mixed_namespaces()

    def resolved(self) -> list[NamedSchema]:
        """Every needed file in dependency order, the aggregate's own last."""
        order = list(self._visit(self._main, [], set()))
        return [self._named(path, order[:position]) for position, path in enumerate(order)]

    def _owned(self) -> Iterator[tuple[str, Path]]:
        """Which file defines a name."""
        seen: dict[str, Path] = {}
        for path, (_, defined) in self._names.items():
            for name in defined:
                if name in seen:
                    message = f"schema file {path}: {name} is defined in {seen[name]} too"
                    raise ConfigurationError(message, "keep one of the two definitions")
                seen[name] = path
                yield name, path

    def _refuse_mixed_namespaces(self) -> None:
        """Inside a type that has a namespace, Avro has no way to write the name of one that has none."""
        bare = sorted(name for name in self._owners if "." not in name)
        if self._paths and bare and len(bare) < len(self._owners):
            message = f"schema file {self._owners[bare[0]]}: {bare[0]} has no namespace, other types here have one"
            raise ConfigurationError(message, "give every type a `namespace`")

    def _visit(self, path: Path, trail: list[Path], done: set[Path]) -> Iterator[Path]:
        """What `path` needs, then `path`."""
        if path in trail:
            circle = " → ".join(entry.name for entry in [*trail[trail.index(path) :], path])
            message = f"schema file {path}: references go in a circle: {circle}"
            raise ConfigurationError(message, "put the types that need each other into one file")
        if path in done:
            return
        for needed in self._needed(path):
            yield from self._visit(needed, [*trail, path], done)
        done.add(path)
        yield path

    def _needed(self, path: Path) -> list[Path]:
        """The files that define what this one uses."""
        for name in self._names[path][0]:
            if name not in self._owners:
                known = ", ".join(sorted(name for name in self._owners if self._owners[name] in self._paths))
                message = f"schema file {path}: it uses {name}, which neither it nor a reference defines"
                raise ConfigurationError(
                    message, f"list its file under `references:`; those listed define: {known or 'nothing'}"
                )
        return list(dict.fromkeys(self._owners[name] for name in self._names[path][0]))

    def _named(self, path: Path, before: list[Path]) -> NamedSchema:
        names = {each: self._names[each][1][0] for each in self._names}
        uses = tuple(names[needed] for needed in self._needed(path))
        is_main = path == self._main
        text = read_schema(path, known=[self._definitions[each] for each in before], record=is_main)
        return NamedSchema(names[path], text, path, uses)
