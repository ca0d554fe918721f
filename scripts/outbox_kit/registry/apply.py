"""Sets compatibility rules, registers schemas, and reads back what the lock file keeps."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import LockedSchema
from outbox_kit.pipeline.avro import fingerprint, same_schema
from outbox_kit.pipeline.lock import KEPT_VERSIONS
from outbox_kit.progress import Progress
from outbox_kit.registry.client import Reference, RegistryClient
from outbox_kit.registry.state import Subject, broken_fields, refuse_older, written_out


def apply(client: RegistryClient, subjects: list[Subject], changes: list[Change], progress: Progress) -> None:
    """Make `changes`, which diff() found for `subjects`. Raises RefusedError, RejectedError, UnreachableError."""
    by_name = {subject.name: subject for subject in subjects}
    old_rules: dict[str, str] = {}
    for change in changes:
        progress(change.title)
        name = change.name
        subject = by_name[name]
        if change.kind == "compatibility":
            client.set_compatibility(name, subject.compatibility)
            old_rules[name] = change.before
        else:
            if change.action == "update" and old_rules.get(name):
                _refuse_under_new_rule(client, subject, old_rules[name])
            client.register(name, subject.by_name or subject.text, _references(client, subject))
            _refuse_older(client, subject)


def _references(client: RegistryClient, subject: Subject) -> list[Reference]:
    """The newest versions of the types that it uses: they were registered before it."""
    found = [(name, client.latest(name)) for name in subject.uses]
    return [Reference(name, name, latest.version) for name, latest in found if latest is not None]


def _refuse_under_new_rule(client: RegistryClient, subject: Subject, old_rule: str) -> None:
    """The registry tests by the rule that it has: so the rule is set first, and put back where it refuses."""
    if subject.uses:
        return  # Apicurio cannot test these; the plan has compared them, and registering tests them
    every = subject.compatibility.endswith("_TRANSITIVE")
    if client.is_compatible(subject.name, subject.text, every_version=every):
        return
    client.set_compatibility(subject.name, old_rule)
    latest = client.latest(subject.name)
    fields = broken_fields(subject.compatibility, latest.text, subject.text) if latest else []
    named = f": {', '.join(fields)}" if fields else ""
    raise RefusedError(
        f"schema of {subject.aggregate_type} is not {subject.compatibility}{named}; "
        f"the rule of {subject.name} is {old_rule} again",
        "give new fields a default, do not change types; or choose another `compatibility` on purpose",
    )


def _refuse_older(client: RegistryClient, subject: Subject) -> None:
    """A registry may take for known what it writes otherwise: so look at what is the newest now."""
    latest = written_out(client, client.latest(subject.name))
    if latest is not None and not same_schema(latest.text, subject.text):
        refuse_older(subject, latest.version)


def locked_schemas(client: RegistryClient, subjects: list[Subject]) -> dict[str, list[LockedSchema]]:
    """The newest versions of every subject, by aggregate type, newest first; every type written out."""
    return {subject.aggregate_type: _newest(client, subject.name) for subject in subjects}


def _newest(client: RegistryClient, subject: str) -> list[LockedSchema]:
    numbers = reversed(client.versions(subject)[-KEPT_VERSIONS:])
    found = [written_out(client, client.version(subject, number)) for number in numbers]
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
