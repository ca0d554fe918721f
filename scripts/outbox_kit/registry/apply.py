"""Sets compatibility rules, registers schemas, and reads back what the lock file keeps."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import LockedSchema
from outbox_kit.pipeline.avro import fingerprint, same_schema
from outbox_kit.pipeline.lock import KEPT_VERSIONS
from outbox_kit.progress import Progress
from outbox_kit.registry.client import RegistryClient
from outbox_kit.registry.state import Subject


def apply(client: RegistryClient, subjects: list[Subject], changes: list[Change], progress: Progress) -> None:
    """Make `changes`, which diff() found for `subjects`."""
    by_name = {subject.name: subject for subject in subjects}
    for change in changes:
        progress(f"{change.action} {change.object}")
        kind, name = change.object.split(" ", 1)
        if kind == "compatibility":
            client.set_compatibility(name, by_name[name].compatibility)
        else:
            client.register(name, by_name[name].text)
            _refuse_older(client, by_name[name])


def _refuse_older(client: RegistryClient, subject: Subject) -> None:
    """A registry hands out the old id for a schema that it has seen, and its newest version stays the newest."""
    latest = client.latest(subject.name)
    if latest is not None and not same_schema(latest.text, subject.text):
        raise RefusedError(
            f"schema of {subject.aggregate_type} was registered before; version {latest.version} of {subject.name} "
            "stays the newest: a registry does not go back",
            "take the newest version's schema, or change the file so that it is a new one (a `doc` will do)",
        )


def locked_schemas(client: RegistryClient, subjects: list[Subject]) -> dict[str, list[LockedSchema]]:
    """The newest versions of every subject, by aggregate type, newest first."""
    return {subject.aggregate_type: _newest(client, subject.name) for subject in subjects}


def _newest(client: RegistryClient, subject: str) -> list[LockedSchema]:
    found = [client.version(subject, number) for number in reversed(client.versions(subject)[-KEPT_VERSIONS:])]
    return [
        LockedSchema(
            subject=subject,
            version=entry.version,
            id=entry.id,
            fingerprint=fingerprint(entry.text),
            text=entry.text,
        )
        for entry in found
        if entry is not None
    ]
