"""Desired and actual subjects of the schema registry, and their difference."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outbox_common.avro_evolution import Difference, differences, field_paths
from outbox_common.avro_schema import inline
from outbox_kit.changes import Action, Change
from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Pipeline
from outbox_kit.pipeline.avro import same_schema
from outbox_kit.pipeline.schema_references import inlined_schema, read_references, registered_schema
from outbox_kit.registry.client import RegistryClient, SchemaVersion

INCOMPATIBLE_HINT = "give new fields a default and do not change types, or set another `compatibility`"


@dataclass(frozen=True)
class Subject:
    """A subject that the files declare: of an aggregate, or of a type that aggregates share."""

    aggregate_type: str
    name: str
    text: str
    compatibility: str
    by_name: str = ""
    """The text to register, with types of other subjects by name; empty if it uses none."""
    uses: tuple[str, ...] = ()
    """Subjects of the types that it uses."""


@dataclass(frozen=True)
class ActualSubject:
    """A subject in the registry; referenced types are inlined in its text."""

    latest: SchemaVersion | None
    compatibility: str | None


def desired_subjects(pipeline: Pipeline) -> list[Subject]:
    """Return a subject per aggregate type with a schema, and the canary's. Raises ConfigurationError."""
    subjects = []
    for name, aggregate in pipeline.with_schemas.items():
        own = registered_schema(aggregate)
        by_name = own.text if own.uses else ""
        subject = pipeline.subject_of(name)
        subjects.append(Subject(name, subject, inlined_schema(aggregate), aggregate.compatibility, by_name, own.uses))
    return subjects


def desired_references(pipeline: Pipeline) -> list[Subject]:
    """Return a subject per type that aggregates share, named like the type, each after those that it uses.

    Raises ConfigurationError.
    """
    shared: dict[str, Subject] = {}
    for name, aggregate in pipeline.with_schemas.items():
        texts: list[str] = []
        for entry in read_references(aggregate):
            text = inline(entry.text, texts) if entry.uses else entry.text
            by_name = entry.text if entry.uses else ""
            subject = Subject(entry.name, entry.name, text, aggregate.compatibility, by_name, entry.uses)
            texts.append(entry.text)
            first = shared.setdefault(entry.name, subject)
            if first != subject:
                raise ConfigurationError(
                    f"type {entry.name} of aggregate {name} has a different text or compatibility "
                    f"({subject.compatibility}) than in another aggregate ({first.compatibility})",
                    "set the same file and the same `compatibility` for these aggregates: a shared type is one subject",
                )
    return list(shared.values())


def read_actual(client: RegistryClient, subjects: list[Subject]) -> dict[str, ActualSubject]:
    """Return the registry's state of each subject, by subject name."""
    return {
        subject.name: ActualSubject(
            with_references_inlined(client, client.latest(subject.name)), client.compatibility(subject.name)
        )
        for subject in subjects
    }


def with_references_inlined(client: RegistryClient, version: SchemaVersion | None) -> SchemaVersion | None:
    """Return the version with every referenced type in its own text, as the transform gets it."""
    if version is None or not version.references:
        return version
    return replace(version, text=client.inlined(version, f"schema id {version.id}"))


def is_registered(subject: Subject, actual: ActualSubject) -> bool:
    """Return whether the latest version is the schema of the file."""
    return actual.latest is not None and same_schema(actual.latest.text, subject.text)


def diff(subjects: list[Subject], actual: dict[str, ActualSubject]) -> list[Change]:
    """Return the compatibility levels to set and versions to register; the level first, so that it applies."""
    changes = []
    for subject in subjects:
        current = actual[subject.name]
        if current.compatibility != subject.compatibility:
            before, after = current.compatibility or "", subject.compatibility
            action: Action = "update" if before else "create"
            reason = "compatibility of new versions"
            changes.append(Change("registry", "compatibility", subject.name, action, reason, before, after))
        if not is_registered(subject, current):
            changes.append(_schema_change(subject, current.latest))
    return changes


def _schema_change(subject: Subject, latest: SchemaVersion | None) -> Change:
    reason = f"payload of {subject.aggregate_type}"
    if latest is None:
        return Change("registry", "schema", subject.name, "create", reason, "", "version 1")
    added, removed = fields_changed(latest.text, subject.text)
    parts = [f"adds {', '.join(added)}" if added else "", f"removes {', '.join(removed)}" if removed else ""]
    fields = "; ".join(filter(None, parts))
    reason = f"{reason}: {fields}" if fields else reason
    before, after = f"version {latest.version}", f"version {latest.version + 1}"
    risk = danger(latest.text, subject.text)
    return Change("registry", "schema", subject.name, "update", reason, before, after, risk)


def fields_changed(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the fields that a new version adds and removes."""
    before, after = field_paths(old), field_paths(new)
    return sorted(after - before), sorted(before - after)


def danger(old: str, new: str) -> str:
    """Describe the effect of a new version on existing records; empty: they are read correctly.

    For a registry a changed logical type is compatible, although existing records are read as different values.
    """
    misread = [
        f"field {entry.field} is {entry.written} in existing records and would be read as {entry.expected}"
        for entry in differences(old, new)
        if entry.readable
    ]
    unreadable = [f"field {_describe(entry)}" for entry in differences(old, new) if not entry.readable]
    if unreadable:
        misread.append(f"existing records cannot be read by the new version: {'; '.join(unreadable)}")
    return "; ".join(misread)


def _describe(entry: Difference) -> str:
    return f"{entry.field} (from {entry.written} to {entry.expected})"


def incompatible_fields(level: str, old: str, new: str) -> list[str]:
    """Return the fields that violate a compatibility level if `new` follows `old`."""
    pairs = []
    if level.startswith(("BACKWARD", "FULL")):
        pairs.append((old, new))
    if level.startswith(("FORWARD", "FULL")):
        pairs.append((new, old))
    fields = [_describe(entry) for pair in pairs for entry in differences(*pair) if not entry.readable]
    return list(dict.fromkeys(fields))


def refuse_incompatible(client: RegistryClient, subjects: list[Subject], actual: dict[str, ActualSubject]) -> None:
    """Raise RefusedError if a new version violates the subject's compatibility level; changes nothing."""
    for subject in subjects:
        current = actual[subject.name]
        if current.latest is None or is_registered(subject, current):
            continue
        # Registering an earlier schema again returns the old id and does not make it the latest version.
        version = None if subject.uses else client.lookup(subject.name, subject.text)
        if version is not None and version < current.latest.version:
            refuse_older(subject, current.latest.version)
        if not _may_follow(client, subject, current, current.latest):
            fields = ", ".join(incompatible_fields(subject.compatibility, current.latest.text, subject.text))
            raise RefusedError(
                f"schema of {subject.aggregate_type} is not {subject.compatibility} "
                f"with version {current.latest.version} of {subject.name}{f': {fields}' if fields else ''}",
                INCOMPATIBLE_HINT,
            )


def _may_follow(client: RegistryClient, subject: Subject, current: ActualSubject, latest: SchemaVersion) -> bool:
    """Test compatibility in the registry, or locally if the level is about to change or the schema has references.

    Apicurio rejects the test of a schema with references with HTTP 422, although it accepts its registration.
    """
    if current.compatibility == subject.compatibility and not subject.uses and not latest.references:
        every = subject.compatibility.endswith("_TRANSITIVE")
        return client.is_compatible(subject.name, subject.text, every_version=every)
    return not incompatible_fields(subject.compatibility, latest.text, subject.text)


def refuse_older(subject: Subject, latest: int) -> None:
    """Raise RefusedError for a schema that is registered as an earlier version."""
    raise RefusedError(
        f"schema of {subject.aggregate_type} was registered before; version {latest} of {subject.name} "
        "stays the latest: a registry cannot return to an earlier version",
        "use the schema of the latest version, or change the file so that it differs (for example a `doc`)",
    )
