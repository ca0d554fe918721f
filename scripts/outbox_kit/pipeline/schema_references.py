"""Resolution of named types in other schema files: dependency order, and schemas with references inlined."""

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
    """Schema file of a named type as registered: other types by name. `uses` are the names of its references."""

    name: str
    text: str
    path: Path
    uses: tuple[str, ...] = ()


def read_references(aggregate: Aggregate) -> list[NamedSchema]:
    """Return the references of the aggregate's schema in dependency order, without those that are not used.

    Raises ConfigurationError for a name that no file or two files define, for circular references, and for a missing
    or invalid file.
    """
    return _Resolver(aggregate).resolved()[:-1]


def registered(aggregate: Aggregate) -> NamedSchema:
    """Return the aggregate's schema as registered, with types of references by name. Raises ConfigurationError."""
    return _Resolver(aggregate).resolved()[-1]


def inlined(aggregate: Aggregate) -> str:
    """Return the aggregate's schema with every referenced type inlined where it is first used.

    Transform and Spark job use this text, without a registry. Raises ConfigurationError.
    """
    *references, own = _Resolver(aggregate).resolved()
    return inline(own.text, [reference.text for reference in references])


class _Resolver:
    """Files of one aggregate, and their dependency order."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._main = aggregate.schema_path
        self._paths = [path for path in dict.fromkeys(aggregate.references) if path != self._main]
        self._definitions = {path: read_definition(path) for path in [*self._paths, self._main]}
        self._names = {path: used_and_defined(definition) for path, definition in self._definitions.items()}
        self._owners: dict[str, Path] = {}
        for path, (_, defined) in self._names.items():
            for name in defined:
                if name in self._owners:
                    message = f"schema file {path}: {name} is also defined in {self._owners[name]}"
                    raise ConfigurationError(message, "remove one of the two definitions")
                self._owners[name] = path
        self._reject_mixed_namespaces()

    def resolved(self) -> list[NamedSchema]:
        """Return every needed file in dependency order, the aggregate's schema last."""
        order = list(self._visit(self._main, [], set()))
        return [self._named(path, order[:position]) for position, path in enumerate(order)]

    def _reject_mixed_namespaces(self) -> None:
        """Reject types without namespace besides others: within a namespace Avro cannot express such a name."""
        bare = sorted(name for name in self._owners if "." not in name)
        if self._paths and bare and len(bare) < len(self._owners):
            message = f"schema file {self._owners[bare[0]]}: {bare[0]} has no namespace, other types here have one"
            raise ConfigurationError(message, "give every type a `namespace`")

    def _visit(self, path: Path, trail: list[Path], done: set[Path]) -> Iterator[Path]:
        """Yield the dependencies of `path`, then `path`."""
        if path in trail:
            cycle = " → ".join(entry.name for entry in [*trail[trail.index(path) :], path])
            message = f"schema file {path}: circular references: {cycle}"
            raise ConfigurationError(message, "define these types in one file")
        if path in done:
            return
        for needed in self._needed(path):
            yield from self._visit(needed, [*trail, path], done)
        done.add(path)
        yield path

    def _needed(self, path: Path) -> list[Path]:
        """Return the files that define the types used by this one."""
        for name in self._names[path][0]:
            if name not in self._owners:
                known = ", ".join(sorted(name for name in self._owners if self._owners[name] in self._paths))
                message = f"schema file {path}: type {name} is not defined in it or in a reference"
                raise ConfigurationError(
                    message, f"add its file to `references:`; the listed files define: {known or 'nothing'}"
                )
        return list(dict.fromkeys(self._owners[name] for name in self._names[path][0]))

    def _named(self, path: Path, before: list[Path]) -> NamedSchema:
        names = {file: defined[0] for file, (_, defined) in self._names.items()}
        uses = tuple(names[needed] for needed in self._needed(path))
        is_main = path == self._main
        text = read_schema(path, known=[self._definitions[file] for file in before], record=is_main)
        return NamedSchema(names[path], text, path, uses)
