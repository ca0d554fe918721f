"""Execute planned changes to the registry, and look up the registered schema versions for the lock file."""

from __future__ import annotations

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import LockedSchema
from outbox_kit.pipeline.avro import fingerprint, same_schema
from outbox_kit.pipeline.lock import RETAINED_VERSIONS
from outbox_kit.registry.client import Reference, RegistryClient
from outbox_kit.registry.state import (
    INCOMPATIBLE_HINT,
    Subject,
    earlier_version_error,
    incompatible_fields,
    with_references_inlined,
)
from outbox_kit.results import Reporter
from outbox_kit.results.changes import Change


def apply(client: RegistryClient, subjects: list[Subject], changes: list[Change], progress: Reporter) -> None:
    """Execute `changes`, which state.diff() returned. Raises RefusedError, RejectedError and UnreachableError."""
    subjects_by_name = {subject.name: subject for subject in subjects}
    old_levels: dict[str, str] = {}
    for change in changes:
        progress(change.title)
        name = change.name
        subject = subjects_by_name[name]
        if change.kind == "compatibility":
            client.set_compatibility(name, subject.compatibility)
            old_levels[name] = change.before
        else:
            if change.action == "update" and old_levels.get(name):
                _restore_level_if_incompatible(client, subject, old_levels[name])
            client.register(name, subject.text_with_references or subject.text, _references(client, subject))
            _refuse_unless_latest(client, subject)


def _references(client: RegistryClient, subject: Subject) -> list[Reference]:
    """Return references to the latest versions of the types that the subject uses. They were registered before it."""
    versions = [(name, client.latest(name)) for name in subject.uses]
    return [Reference(name, name, latest.version) for name, latest in versions if latest is not None]


def _restore_level_if_incompatible(client: RegistryClient, subject: Subject, old_level: str) -> None:
    """Restore the old level and raise RefusedError if the schema violates the new level, which is already set."""
    if subject.uses:
        return  # Apicurio cannot test a schema with references; `plan` and the registration test it
    if client.is_compatible(subject.name, subject.text, subject.compatibility):
        return
    client.set_compatibility(subject.name, old_level)
    latest = client.latest(subject.name)
    fields = incompatible_fields(subject.compatibility, latest.text, subject.text) if latest else []
    suffix = f": {', '.join(fields)}" if fields else ""
    raise RefusedError(
        f"schema of {subject.aggregate_type} is not {subject.compatibility} compatible{suffix}; "
        f"the compatibility level of {subject.name} was set back to {old_level}",
        INCOMPATIBLE_HINT,
    )


def _refuse_unless_latest(client: RegistryClient, subject: Subject) -> None:
    """Raise RefusedError if the subject's schema is not in its latest version but in an earlier version."""
    latest = with_references_inlined(client, client.latest(subject.name))
    if latest is not None and not same_schema(latest.text, subject.text):
        raise earlier_version_error(subject, latest.version)


def recorded_schemas(client: RegistryClient, subjects: list[Subject]) -> dict[str, list[LockedSchema]]:
    """Return a mapping from aggregate types to their latest schema versions, newest first. References are inlined."""
    return {subject.aggregate_type: _latest_versions(client, subject.name) for subject in subjects}


def _latest_versions(client: RegistryClient, subject: str) -> list[LockedSchema]:
    numbers = reversed(client.versions(subject)[-RETAINED_VERSIONS:])
    versions = [with_references_inlined(client, client.version(subject, number)) for number in numbers]
    return [
        LockedSchema(subject=subject, version=v.version, id=v.id, fingerprint=fingerprint(v.text), text=v.text)
        for v in versions
        if v is not None
    ]
