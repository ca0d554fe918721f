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
    """Desired subject of an aggregate, or of a type that aggregates share."""

    aggregate_type: str
    name: str
    text: str
    compatibility: str
    by_name: str = ""
    """Text to register, which names the types of other subjects; empty if the schema uses no such types."""
    uses: tuple[str, ...] = ()
    """Subjects of the types that `by_name` uses."""


@dataclass(frozen=True)
class ActualSubject:
    """Subject in the registry. In the text of `latest` referenced types are inlined."""

    latest: SchemaVersion | None
    compatibility: str | None


def desired_subjects(pipeline: Pipeline) -> list[Subject]:
    """Return the subjects of all aggregates with a schema, including the canary. Raises ConfigurationError."""
    subjects = []
    for name, aggregate in pipeline.with_schemas.items():
        schema = registered_schema(aggregate)
        by_name = schema.text if schema.uses else ""
        subject = pipeline.subject_of(name)
        text = inlined_schema(aggregate)
        subjects.append(Subject(name, subject, text, aggregate.compatibility, by_name, schema.uses))
    return subjects


def desired_references(pipeline: Pipeline) -> list[Subject]:
    """Return the subjects of all referenced types, in dependency order. A subject has the name of its type.

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
            existing = shared.setdefault(entry.name, subject)
            if existing != subject:
                raise ConfigurationError(
                    f"type {entry.name} of aggregate {name} has a different text or compatibility "
                    f"({subject.compatibility}) than in another aggregate ({existing.compatibility})",
                    "use the same file and the same `compatibility` in these aggregates: a shared type has one subject",
                )
    return list(shared.values())


def read_actual(client: RegistryClient, subjects: list[Subject]) -> dict[str, ActualSubject]:
    """Return the actual state of the subjects, by name."""
    return {
        subject.name: ActualSubject(
            with_references_inlined(client, client.latest(subject.name)), client.compatibility(subject.name)
        )
        for subject in subjects
    }


def with_references_inlined(client: RegistryClient, version: SchemaVersion | None) -> SchemaVersion | None:
    """Return the version with every referenced type inlined in its text, as in the connector config."""
    if version is None or not version.references:
        return version
    return replace(version, text=client.inlined(version, f"schema id {version.id}"))


def is_registered(subject: Subject, actual: ActualSubject) -> bool:
    """Return whether the latest version in the registry is the schema in the file."""
    return actual.latest is not None and same_schema(actual.latest.text, subject.text)


def diff(subjects: list[Subject], actual: dict[str, ActualSubject]) -> list[Change]:
    """Return changes that set levels and register versions. A subject's level is set before its new version."""
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
    field_changes = [f"adds {', '.join(added)}" if added else "", f"removes {', '.join(removed)}" if removed else ""]
    fields = "; ".join(filter(None, field_changes))
    reason = f"{reason}: {fields}" if fields else reason
    before, after = f"version {latest.version}", f"version {latest.version + 1}"
    risk = danger(latest.text, subject.text)
    return Change("registry", "schema", subject.name, "update", reason, before, after, risk)


def fields_changed(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the fields that a new version adds and removes."""
    before, after = field_paths(old), field_paths(new)
    return sorted(after - before), sorted(before - after)


def danger(old: str, new: str) -> str:
    """Return a description of the fields of existing records that a new version misreads, empty if there are none.

    A registry accepts a changed logical type, although consumers then read existing values incorrectly.
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
    """Return the fields whose change from `old` to `new` violates a compatibility level."""
    pairs = []
    if level.startswith(("BACKWARD", "FULL")):
        pairs.append((old, new))
    if level.startswith(("FORWARD", "FULL")):
        pairs.append((new, old))
    fields = [_describe(entry) for pair in pairs for entry in differences(*pair) if not entry.readable]
    return list(dict.fromkeys(fields))


def refuse_incompatible(client: RegistryClient, subjects: list[Subject], actual: dict[str, ActualSubject]) -> None:
    """Raise RefusedError if a new version would violate the compatibility level. The registry is not changed."""
    for subject in subjects:
        current = actual[subject.name]
        if current.latest is None or is_registered(subject, current):
            continue
        # If an earlier version has the schema, registration returns the id of that version and adds no version.
        version = None if subject.uses else client.lookup(subject.name, subject.text)
        if version is not None and version < current.latest.version:
            refuse_older(subject, current.latest.version)
        if not _is_compatible(client, subject, current, current.latest):
            fields = ", ".join(incompatible_fields(subject.compatibility, current.latest.text, subject.text))
            raise RefusedError(
                f"schema of {subject.aggregate_type} is not {subject.compatibility} "
                f"with version {current.latest.version} of {subject.name}{f': {fields}' if fields else ''}",
                INCOMPATIBLE_HINT,
            )


def _is_compatible(client: RegistryClient, subject: Subject, current: ActualSubject, latest: SchemaVersion) -> bool:
    """Test compatibility in the registry, or locally if the level changes or a schema has references.

    If a schema has references, Apicurio rejects the test (HTTP 422), although it accepts the registration.
    """
    if current.compatibility == subject.compatibility and not subject.uses and not latest.references:
        return client.is_compatible(subject.name, subject.text, subject.compatibility)
    return not incompatible_fields(subject.compatibility, latest.text, subject.text)


def refuse_older(subject: Subject, latest: int) -> None:
    """Raise the RefusedError for a schema that equals an earlier version of its subject."""
    raise RefusedError(
        f"schema of {subject.aggregate_type} equals an earlier version of {subject.name}; version {latest} remains the "
        "latest, because a registry cannot return to an earlier version",
        "use the schema of the latest version, or change the schema, for example a `doc`",
    )
