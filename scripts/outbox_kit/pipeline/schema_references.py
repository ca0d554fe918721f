"""Resolve named types in other schema files: sort the files by dependency, and inline references into schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outbox_events.errors import ConfigurationError
from outbox_events.schemas.avro_schema import inline
from outbox_kit.pipeline.avro import (
    parse_bounded,
    read_definition,
    read_file,
    read_schema,
    too_deep,
    used_and_defined_names,
)
from outbox_kit.pipeline.model import Aggregate


@dataclass(frozen=True)
class NamedSchema:
    """Schema file of a named type, and the text to register. `uses` contains the names of referenced schemas."""

    name: str
    text: str
    path: Path
    uses: tuple[str, ...] = ()


def read_references(aggregate: Aggregate) -> list[NamedSchema]:
    """Return the references of the aggregate's schema in dependency order, without unused references.

    Raises ConfigurationError for a type that is not defined in exactly one file, for circular references, and for a
    missing or invalid file.
    """
    return _Resolver(aggregate.schema_path, aggregate.references).ordered_schemas()[:-1]


def registered_schema(aggregate: Aggregate) -> NamedSchema:
    """Return the schema to register, which refers to referenced types by name. Raises ConfigurationError."""
    return _Resolver(aggregate.schema_path, aggregate.references).ordered_schemas()[-1]


def inlined_schema(aggregate: Aggregate) -> str:
    """Return the aggregate's schema with every referenced type inlined where it is first used.

    The transform and the Spark job use this text. Raises ConfigurationError.
    """
    paths = [*aggregate.references, aggregate.schema_path]
    return _inlined_schema(aggregate.schema_path, tuple(aggregate.references), tuple(map(read_file, paths)))


# Results are cached, because each command needs the same schemas several times. The cache key includes the file texts.
@lru_cache(maxsize=10_000)
def _inlined_schema(path: Path, reference_paths: tuple[Path, ...], _texts: tuple[str, ...]) -> str:
    subject = f"schema file {path}"
    try:
        *references, schema = _Resolver(path, reference_paths).ordered_schemas()
        text = inline(schema.text, [reference.text for reference in references])
    except RecursionError:
        raise too_deep(subject) from None
    parse_bounded(subject, text)  # with references, a type can be nested deeper than in its own file
    return text


class _Resolver:
    """Schema files of one aggregate type, with the names of the types that the files use and define."""

    def __init__(self, main_path: Path, reference_paths: Iterable[Path]) -> None:
        self._main_path = main_path
        self._reference_paths = [path for path in dict.fromkeys(reference_paths) if path != main_path]
        self._definitions = {path: read_definition(path) for path in [*self._reference_paths, self._main_path]}
        self._type_names = {path: used_and_defined_names(schema) for path, schema in self._definitions.items()}
        self._files: dict[str, Path] = {}
        for path, (_, defined) in self._type_names.items():
            for name in defined:
                if name in self._files:
                    message = f"schema file {path}: {name} is also defined in {self._files[name]}"
                    raise ConfigurationError(message, "remove the type from one of the two files")
                self._files[name] = path
        self._reject_mixed_namespaces()

    def ordered_schemas(self) -> list[NamedSchema]:
        """Return the schemas of all needed files in dependency order. The aggregate's schema is the last one."""
        order = list(self._visit(self._main_path, [], set()))
        return [self._named_schema(path, order[:position]) for position, path in enumerate(order)]

    def _reject_mixed_namespaces(self) -> None:
        """Reject a mix of types with and without a namespace. A type with a namespace cannot use a type without one."""
        bare_names = sorted(name for name in self._files if "." not in name)
        if self._reference_paths and bare_names and len(bare_names) < len(self._files):
            name = bare_names[0]
            message = f"schema file {self._files[name]}: {name} has no namespace, but other types have one"
            raise ConfigurationError(message, "give every type a `namespace`")

    def _visit(self, path: Path, ancestors: list[Path], visited: set[Path]) -> Iterator[Path]:
        """Yield the dependencies of `path`, then `path`. `ancestors` are the files that depend on `path`."""
        if path in ancestors:
            cycle = " → ".join(entry.name for entry in [*ancestors[ancestors.index(path) :], path])
            message = f"schema file {path}: circular references: {cycle}"
            raise ConfigurationError(message, "define these types in one file")
        if path in visited:
            return
        for dependency in self._dependencies(path):
            yield from self._visit(dependency, [*ancestors, path], visited)
        visited.add(path)
        yield path

    def _dependencies(self, path: Path) -> list[Path]:
        """Return the files that define the types that `path` uses. Raises ConfigurationError for an undefined type."""
        for name in self._type_names[path][0]:
            if name not in self._files:
                types = ", ".join(sorted(name for name in self._files if self._files[name] in self._reference_paths))
                message = f"schema file {path}: type {name} is defined neither in this file nor in its references"
                raise ConfigurationError(
                    message, f"add the type's file to `references`; the listed files define: {types or 'no type'}"
                )
        return list(dict.fromkeys(self._files[name] for name in self._type_names[path][0]))

    def _named_schema(self, path: Path, dependencies: list[Path]) -> NamedSchema:
        names = {file: defined[0] for file, (_, defined) in self._type_names.items()}
        uses = tuple(names[dependency] for dependency in self._dependencies(path))
        is_main = path == self._main_path
        text = read_schema(path, references=[self._definitions[file] for file in dependencies], require_record=is_main)
        return NamedSchema(names[path], text, path, uses)
