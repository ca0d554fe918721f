"""Subjects that the pipeline needs, subjects as they are, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Pipeline
from outbox_kit.pipeline.avro import read_schema, same_schema
from outbox_kit.registry.client import RegistryClient, SchemaVersion


@dataclass(frozen=True)
class Subject:
    """One subject as the files want it."""

    aggregate_type: str
    name: str
    text: str
    compatibility: str


@dataclass(frozen=True)
class ActualSubject:
    """One subject as the registry has it."""

    latest: SchemaVersion | None
    compatibility: str | None


def desired_subjects(pipeline: Pipeline) -> list[Subject]:
    """One subject per aggregate type, the canary's among them. Raises ConfigurationError for a bad schema."""
    return [
        Subject(name, pipeline.subject_of(name), read_schema(aggregate.schema_file), aggregate.compatibility)
        for name, aggregate in pipeline.routed.items()
    ]


def read_actual(client: RegistryClient, subjects: list[Subject]) -> dict[str, ActualSubject]:
    """The registry's state of each subject, by subject name."""
    return {
        subject.name: ActualSubject(client.latest(subject.name), client.compatibility(subject.name))
        for subject in subjects
    }


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
            name = f"compatibility {subject.name}"
            action = "update" if live.compatibility else "create"
            changes.append(
                Change("registry", name, action, "rule for new versions", before, subject.compatibility)  # type: ignore[arg-type]
            )
        if not is_registered(subject, live):
            before = f"version {live.latest.version}" if live.latest else ""
            after = f"version {live.latest.version + 1}" if live.latest else "version 1"
            changes.append(
                Change(
                    "registry",
                    f"schema {subject.name}",
                    "update" if live.latest else "create",
                    f"payload of {subject.aggregate_type}",
                    before,
                    after,
                )
            )
    return changes


def refuse_incompatible(client: RegistryClient, subjects: list[Subject], actual: dict[str, ActualSubject]) -> None:
    """Stop before anything is changed when a new version breaks the subject's rule. Raises RefusedError."""
    for subject in subjects:
        live = actual[subject.name]
        if live.latest is None or is_registered(subject, live):
            continue
        if live.compatibility != subject.compatibility:
            continue  # the registry would answer by the old rule; under the new one, registering itself is the test
        if not client.is_compatible(subject.name, subject.text):
            raise RefusedError(
                f"schema of {subject.aggregate_type} is not {live.compatibility or 'compatible'} "
                f"with version {live.latest.version} of {subject.name}",
                "give new fields a default, do not change types; or choose another `compatibility` on purpose",
            )
