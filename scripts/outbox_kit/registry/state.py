"""Compare the desired and actual subjects of the schema registry, and return the changes to make."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outbox_common.avro_evolution import Difference, differences, field_paths
from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.schemas.avro_schema import inline
from outbox_kit.pipeline import Pipeline
from outbox_kit.pipeline.avro import same_schema
from outbox_kit.pipeline.schema_references import inlined_schema, read_references, registered_schema
from outbox_kit.registry.client import RegistryClient, SchemaVersion
from outbox_kit.results.changes import Action, Change

INCOMPATIBLE_HINT = "give new fields a default and keep field types, or set `compatibility` in the pipeline file"


@dataclass(frozen=True)
class Subject:
    """Desired subject of an aggregate type or a referenced type. `aggregate_type` contains the name of that type."""

    aggregate_type: str
    name: str
    text: str
    compatibility: str
    text_with_references: str = ""
    """Text to register if the schema refers to other subjects' types by name. If it is empty, `text` is registered."""
    uses: tuple[str, ...] = ()
    """Subjects of the types to which `text_with_references` refers."""


@dataclass(frozen=True)
class ActualSubject:
    """Subject in the registry. The text of `latest` contains the referenced types inline. Unset fields are None."""

    latest: SchemaVersion | None
    compatibility: str | None


def desired_subjects(pipeline: Pipeline) -> list[Subject]:
    """Return the subjects of all aggregate types that have a schema, with the canary's. Raises ConfigurationError."""
    subjects = []
    for name, aggregate in pipeline.with_schemas.items():
        schema = registered_schema(aggregate)
        text_with_references = schema.text if schema.uses else ""
        subject = pipeline.subject_of(name)
        text = inlined_schema(aggregate)
        subjects.append(Subject(name, subject, text, aggregate.compatibility, text_with_references, schema.uses))
    return subjects


def desired_references(pipeline: Pipeline) -> list[Subject]:
    """Return the subjects of all referenced types in dependency order. A subject is named after its type.

    Raises ConfigurationError.
    """
    subjects_by_type: dict[str, Subject] = {}
    for name, aggregate in pipeline.with_schemas.items():
        texts: list[str] = []
        for entry in read_references(aggregate):
            text = inline(entry.text, texts) if entry.uses else entry.text
            text_with_references = entry.text if entry.uses else ""
            subject = Subject(entry.name, entry.name, text, aggregate.compatibility, text_with_references, entry.uses)
            texts.append(entry.text)
            existing_subject = subjects_by_type.setdefault(entry.name, subject)
            if existing_subject != subject:
                raise ConfigurationError(
                    f"type {entry.name} has a different text or compatibility in aggregate {name} "
                    f"({subject.compatibility}) and in another aggregate ({existing_subject.compatibility})",
                    "use the same file and the same `compatibility` in all aggregates that use the type",
                )
    return list(subjects_by_type.values())


def read_actual(client: RegistryClient, subjects: list[Subject]) -> dict[str, ActualSubject]:
    """Return a mapping from subject names to the subjects' actual states."""
    return {
        subject.name: ActualSubject(
            with_references_inlined(client, client.latest(subject.name)), client.compatibility(subject.name)
        )
        for subject in subjects
    }


def with_references_inlined(client: RegistryClient, version: SchemaVersion | None) -> SchemaVersion | None:
    """Return the version with all referenced types inlined in its text, as the connector config contains it."""
    if version is None or not version.references:
        return version
    return replace(version, text=client.inlined(version, f"schema id {version.id}"))


def is_registered(subject: Subject, actual: ActualSubject) -> bool:
    """Return whether the latest version in the registry is the schema of the schema file."""
    return actual.latest is not None and same_schema(actual.latest.text, subject.text)


def diff(subjects: list[Subject], actual: dict[str, ActualSubject]) -> list[Change]:
    """Return the changes that set levels and register versions. A subject's level is set before a new version."""
    changes = []
    for subject in subjects:
        actual_subject = actual[subject.name]
        if actual_subject.compatibility != subject.compatibility:
            before, after = actual_subject.compatibility or "", subject.compatibility
            action: Action = "update" if before else "create"
            reason = "compatibility level for new versions"
            changes.append(Change("registry", "compatibility", subject.name, action, reason, before, after))
        if not is_registered(subject, actual_subject):
            changes.append(_schema_change(subject, actual_subject.latest))
    return changes


def _schema_change(subject: Subject, latest: SchemaVersion | None) -> Change:
    reason = f"payload of {subject.aggregate_type}"
    if latest is None:
        return Change("registry", "schema", subject.name, "create", reason, "", "version 1")
    added_fields, removed_fields = fields_changed(latest.text, subject.text)
    changed_fields = {"adds": added_fields, "removes": removed_fields}
    fields = "; ".join(f"{verb} {', '.join(names)}" for verb, names in changed_fields.items() if names)
    reason = f"{reason}: {fields}" if fields else reason
    before, after = f"version {latest.version}", f"version {latest.version + 1}"
    risk = danger(latest.text, subject.text)
    return Change("registry", "schema", subject.name, "update", reason, before, after, risk)


def fields_changed(old_schema: str, new_schema: str) -> tuple[list[str], list[str]]:
    """Return the paths of the fields that a new version adds, and the paths of the fields that it removes."""
    before, after = field_paths(old_schema), field_paths(new_schema)
    return sorted(after - before), sorted(before - after)


def danger(old_schema: str, new_schema: str) -> str:
    """Return a text that lists the fields of existing records that a new version misreads or cannot read, or ''.

    The registry does not detect misread fields, because it accepts changes of logical types.
    """
    changed_fields = differences(old_schema, new_schema)
    misread_fields = [
        f"field {entry.field} is {entry.written} in existing records and would be read as {entry.expected}"
        for entry in changed_fields
        if entry.readable
    ]
    unreadable_fields = [f"field {_describe(entry)}" for entry in changed_fields if not entry.readable]
    if unreadable_fields:
        misread_fields.append(f"existing records cannot be read by the new version: {'; '.join(unreadable_fields)}")
    return "; ".join(misread_fields)


def _describe(entry: Difference) -> str:
    return f"{entry.field} (from {entry.written} to {entry.expected})"


def incompatible_fields(level: str, old_schema: str, new_schema: str) -> list[str]:
    """Return the fields whose changes violate a compatibility level, with their types."""
    pairs = []
    if level.startswith(("BACKWARD", "FULL")):
        pairs.append((old_schema, new_schema))
    if level.startswith(("FORWARD", "FULL")):
        pairs.append((new_schema, old_schema))
    fields = [_describe(entry) for pair in pairs for entry in differences(*pair) if not entry.readable]
    return list(dict.fromkeys(fields))


def refuse_incompatible(client: RegistryClient, subjects: list[Subject], actual: dict[str, ActualSubject]) -> None:
    """Raise RefusedError if a schema violates its compatibility level or equals an earlier version of its subject."""
    for subject in subjects:
        actual_subject = actual[subject.name]
        if actual_subject.latest is None or is_registered(subject, actual_subject):
            continue
        # Registering the schema of an earlier version returns the id of that version, and does not add a version.
        version = None if subject.uses else client.lookup(subject.name, subject.text)
        if version is not None and version < actual_subject.latest.version:
            raise earlier_version_error(subject, actual_subject.latest.version)
        if not _is_compatible(client, subject, actual_subject, actual_subject.latest):
            fields = ", ".join(incompatible_fields(subject.compatibility, actual_subject.latest.text, subject.text))
            raise RefusedError(
                f"schema of {subject.aggregate_type} is not {subject.compatibility} compatible "
                f"with version {actual_subject.latest.version} of {subject.name}{f': {fields}' if fields else ''}",
                INCOMPATIBLE_HINT,
            )


def _is_compatible(client: RegistryClient, subject: Subject, actual: ActualSubject, latest: SchemaVersion) -> bool:
    """Test compatibility in the registry or, if the level changes or a schema has references, locally.

    Apicurio rejects the test of a schema with references (HTTP 422), although it accepts the registration.
    """
    if actual.compatibility == subject.compatibility and not subject.uses and not latest.references:
        return client.is_compatible(subject.name, subject.text, subject.compatibility)
    return not incompatible_fields(subject.compatibility, latest.text, subject.text)


def earlier_version_error(subject: Subject, latest: int) -> RefusedError:
    """Return an error for a schema that equals an earlier version of its subject. `latest` is a version number."""
    return RefusedError(
        f"schema of {subject.aggregate_type} equals an earlier version of {subject.name}; version {latest} remains the "
        "latest, because a registry cannot return to an earlier version",
        f"write the schema of version {latest} into the schema file, or change the schema, for example its `doc`",
    )
