"""Check the schema registry for `outbox verify`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from outbox_events.schemas.registry_reader import subject_path
from outbox_kit.pipeline import Lock
from outbox_kit.pipeline.avro import same_schema
from outbox_kit.registry.state import ActualSubject, Subject, is_registered
from outbox_kit.results.checks import Finding, Rules


@dataclass(frozen=True)
class RegistryState:
    subjects: list[Subject]
    actual: dict[str, ActualSubject]
    lock: Lock
    url: str = ""


RULES = Rules[RegistryState]()


@RULES.rule(
    "registry.reachable",
    condition="the schema registry responds, and has the address in the lock file",
    remedy="check registry.url in the environment file; if the registry has a new address, run `outbox apply`",
)
def _reachable(state: RegistryState) -> Finding:
    recorded = state.lock.registry_url
    if state.url and recorded not in (None, state.url):
        return Finding(False, state.url, f"{recorded}, the address in the lock file")
    return Finding(True, f"a response for {len(state.actual)} subjects", "a response")


@RULES.rule(
    "registry.schemas",
    condition="the latest version of every subject is the schema in the schema file",
    remedy="run `outbox apply`; if the schema file contains an earlier version, replace it with the latest version",
)
def _registered(state: RegistryState) -> Finding:
    problems = [subject.name for subject in state.subjects if not is_registered(subject, state.actual[subject.name])]
    expected = f"the latest version of all {len(state.subjects)} subjects is the schema in the file"
    actual = f"not the schema in the file: {', '.join(problems)}" if problems else expected
    return Finding(not problems, actual, expected, _foreign_version_remedy(state))


def _foreign_version_remedy(state: RegistryState) -> str:
    """Return the commands that delete the versions after the version in the schema file, or an empty string.

    `apply` refuses the file's schema, because a registry cannot return to an earlier version.
    """
    commands = [
        f"`curl -X DELETE {shlex.quote(f'{state.url}{subject_path(subject.name)}/versions/{number}')}`"
        for subject in state.subjects
        for number in _later_versions(state, subject)
    ]
    if not commands:
        return ""
    return (
        "if the connector config contains the later versions (connect.config), outbox-kit registered them: restore the "
        "lock file and the schema file from version control; otherwise, if writers do not use these versions, run "
        f"{', '.join(commands)}; if a writer uses them, write the latest version into the schema file"
    )


def _later_versions(state: RegistryState, subject: Subject) -> range:
    """Return the versions that another client registered after the schema file's version, which the lock file lists.

    If the subject was deleted, another client can have registered a version with a number in the lock file.
    """
    latest = state.actual[subject.name].latest
    recorded = state.lock.schemas.get(subject.aggregate_type, [])
    own = [entry.version for entry in recorded if same_schema(entry.text, subject.text)]
    if latest is None or not own:
        return range(0)
    same_number = [entry for entry in recorded if entry.version == latest.version]
    if any(same_schema(entry.text, latest.text) for entry in same_number):
        return range(0)
    first = latest.version if same_number or latest.version < max(own) else max(own) + 1
    return range(first, latest.version + 1)


@RULES.rule(
    "registry.ids",
    condition="the id of the latest version of every subject is in the lock file",
    remedy="run `outbox apply`; if the registry lost schemas, restore them with the ids that existing records contain",
)
def _ids(state: RegistryState) -> Finding:
    problems, remedy = [], ""
    for subject in state.subjects:
        latest = state.actual[subject.name].latest
        recorded_ids = [entry.id for entry in state.lock.schemas.get(subject.aggregate_type, [])]
        if latest is not None and latest.id not in recorded_ids:
            problems.append(f"{subject.name} has id {latest.id}, but the lock file has {recorded_ids}")
            remedy = "see registry.schemas" if _later_versions(state, subject) else remedy
    return Finding(not problems, "; ".join(problems) or "ids in the lock file", "ids in the lock file", remedy)


@RULES.rule(
    "registry.compatibility",
    condition="every subject has the compatibility level that the pipeline file specifies",
    remedy="run `outbox apply`",
)
def _compatibility(state: RegistryState) -> Finding:
    levels = [(subject, state.actual[subject.name].compatibility) for subject in state.subjects]
    problems = [
        f"{item.name} is {level}, not {item.compatibility}" for item, level in levels if level != item.compatibility
    ]
    return Finding(not problems, "; ".join(problems) or "as declared", "as declared")
