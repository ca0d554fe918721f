"""Subjects that the pipeline needs, subjects as they are, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_common.avro_evolution import Difference, differences, field_paths
from outbox_common.avro_schema import inline
from outbox_kit.changes import Action, Change
from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Pipeline
from outbox_kit.pipeline.avro import same_schema
from outbox_kit.pipeline.schema_references import inlined, read_references, registered
from outbox_kit.registry.client import Reference, RegistryClient, SchemaVersion


@dataclass(frozen=True)
class Subject:
    """One subject as the files want it: an aggregate's, or one of a type that aggregates share."""

    aggregate_type: str
    name: str
    text: str
    compatibility: str
    by_name: str = ""
    """The text as it is registered, types of other subjects by name; empty: it uses none."""
    uses: tuple[str, ...] = ()
    """Subjects of the types that it uses."""


@dataclass(frozen=True)
class ActualSubject:
    """One subject as the registry has it; its text with every type written out."""

    latest: SchemaVersion | None
    compatibility: str | None


def desired_subjects(pipeline: Pipeline) -> list[Subject]:
    """One subject per aggregate type with a schema, the canary's too. Raises ConfigurationError for a bad schema."""
    subjects = []
    for name, aggregate in pipeline.with_schemas.items():
        own = registered(aggregate)
        by_name = own.text if own.uses else ""
        subject = pipeline.subject_of(name)
        subjects.append(Subject(name, subject, inlined(aggregate), aggregate.compatibility, by_name, own.uses))
    return subjects


def desired_references(pipeline: Pipeline) -> list[Subject]:
    """One subject per type that aggregates share, called as the type is; each after those that it uses.

    Raises ConfigurationError.
    """
    found: dict[str, Subject] = {}
    for name, aggregate in pipeline.with_schemas.items():
        texts: list[str] = []
        for entry in read_references(aggregate):
            text = inline(entry.text, texts) if entry.uses else entry.text
            by_name = entry.text if entry.uses else ""
            subject = Subject(entry.name, entry.name, text, aggregate.compatibility, by_name, entry.uses)
            texts.append(entry.text)
            other = found.setdefault(entry.name, subject)
            if other != subject:
                raise ConfigurationError(
                    f"type {entry.name} of aggregate {name} has another text or compatibility "
                    f"({subject.compatibility}) than in another aggregate ({other.compatibility})",
                    "a shared type is one subject: give these aggregates one file and one `compatibility`",
                )
    return list(found.values())


def read_actual(client: RegistryClient, subjects: list[Subject]) -> dict[str, ActualSubject]:
    """The registry's state of each subject, by subject name."""
    return {
        subject.name: ActualSubject(
            written_out(client, client.latest(subject.name)), client.compatibility(subject.name)
        )
        for subject in subjects
    }


def written_out(client: RegistryClient, found: SchemaVersion | None) -> SchemaVersion | None:
    """The version with every type of its references in its own text, as the transform gets it."""
    if found is None or not found.references:
        return found
    texts: dict[tuple[str, int], str] = {}
    _collect(client, found.references, texts)
    return SchemaVersion(found.version, found.id, inline(found.text, list(texts.values())), found.references)


def _collect(client: RegistryClient, references: tuple[Reference, ...], texts: dict[tuple[str, int], str]) -> None:
    for entry in references:
        key = (entry.subject, entry.version)
        version = client.version(*key) if key not in texts else None
        if version is not None:
            _collect(client, version.references, texts)
            texts[key] = version.text


def is_registered(subject: Subject, actual: ActualSubject) -> bool:
    """Whether the newest version is the file's schema."""
    return actual.latest is not None and same_schema(actual.latest.text, subject.text)


def diff(subjects: list[Subject], actual: dict[str, ActualSubject]) -> list[Change]:
    """Rules to set and versions to register; the rule first, so that it guards the version."""
    changes = []
    for subject in subjects:
        live = actual[subject.name]
        if live.compatibility != subject.compatibility:
            before = live.compatibility or ""
            action: Action = "update" if live.compatibility else "create"
            reason = "rule for new versions"
            changes.append(
                Change("registry", "compatibility", subject.name, action, reason, before, subject.compatibility)
            )
        if not is_registered(subject, live):
            changes.append(_schema_change(subject, live.latest))
    return changes


def _schema_change(subject: Subject, latest: SchemaVersion | None) -> Change:
    reason = f"payload of {subject.aggregate_type}"
    if latest is None:
        return Change("registry", "schema", subject.name, "create", reason, "", "version 1")
    added, removed = fields_changed(latest.text, subject.text)
    parts = [f"adds {', '.join(added)}" if added else "", f"removes {', '.join(removed)}" if removed else ""]
    words = "; ".join(filter(None, parts))
    return Change(
        "registry",
        "schema",
        subject.name,
        "update",
        f"{reason}: {words}" if words else reason,
        f"version {latest.version}",
        f"version {latest.version + 1}",
        danger(latest.text, subject.text),
    )


def fields_changed(old: str, new: str) -> tuple[list[str], list[str]]:
    """Fields that a new version adds and removes."""
    before, after = field_paths(old), field_paths(new)
    return sorted(after - before), sorted(before - after)


def danger(old: str, new: str) -> str:
    """What a new version does to records under the old one, in words; empty: they are read as they were meant.

    A registry calls a change of a logical type compatible, for the bytes can be read: as another value.
    """
    misread = [
        f"field {entry.field} is {entry.written} in the records that exist and would be read as {entry.expected}"
        for entry in differences(old, new)
        if entry.readable
    ]
    unreadable = [f"field {_words(entry)}" for entry in differences(old, new) if not entry.readable]
    if unreadable:
        misread.append(f"records that exist cannot be read by the new version: {'; '.join(unreadable)}")
    return "; ".join(misread)


def _words(entry: Difference) -> str:
    return f"{entry.field} (from {entry.written} to {entry.expected})"


def broken_fields(rule: str, old: str, new: str) -> list[str]:
    """Fields because of which `new` may not follow `old` under a compatibility rule."""
    pairs = []
    if rule.startswith(("BACKWARD", "FULL")):
        pairs.append((old, new))
    if rule.startswith(("FORWARD", "FULL")):
        pairs.append((new, old))
    found = [_words(entry) for pair in pairs for entry in differences(*pair) if not entry.readable]
    return list(dict.fromkeys(found))


def refuse_incompatible(client: RegistryClient, subjects: list[Subject], actual: dict[str, ActualSubject]) -> None:
    """Stop before anything is changed when a new version breaks the subject's rule. Raises RefusedError."""
    for subject in subjects:
        live = actual[subject.name]
        if live.latest is None or is_registered(subject, live):
            continue
        _refuse_old_version(client, subject, live.latest)
        if not _may_follow(client, subject, live, live.latest):
            fields = ", ".join(broken_fields(subject.compatibility, live.latest.text, subject.text))
            raise RefusedError(
                f"schema of {subject.aggregate_type} is not {subject.compatibility} "
                f"with version {live.latest.version} of {subject.name}{f': {fields}' if fields else ''}",
                "give new fields a default, do not change types; or choose another `compatibility` on purpose",
            )


def _may_follow(client: RegistryClient, subject: Subject, live: ActualSubject, latest: SchemaVersion) -> bool:
    """By the registry's word where it can be asked: under the rule that it has, about a text that stands alone.

    Apicurio answers 422 for a schema with references here, though it accepts it for registration.
    """
    if live.compatibility == subject.compatibility and not subject.uses and not latest.references:
        every = subject.compatibility.endswith("_TRANSITIVE")
        return client.is_compatible(subject.name, subject.text, every_version=every)
    return not broken_fields(subject.compatibility, latest.text, subject.text)


def _refuse_old_version(client: RegistryClient, subject: Subject, latest: SchemaVersion) -> None:
    """A registry hands out the old id for a schema that it has seen, and its newest version stays the newest."""
    if not subject.uses:
        version = client.lookup(subject.name, subject.text)
        if version is not None and version < latest.version:
            refuse_older(subject, latest.version)


def refuse_older(subject: Subject, newest: int) -> None:
    """Raises RefusedError."""
    raise RefusedError(
        f"schema of {subject.aggregate_type} was registered before; version {newest} of {subject.name} "
        "stays the newest: a registry does not go back",
        "take the newest version's schema, or change the file so that it is a new one (a `doc` will do)",
    )
