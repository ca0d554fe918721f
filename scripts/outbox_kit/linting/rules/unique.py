"""Rules for names that only one of several pipelines may use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

from outbox_kit.connector_config import MESSAGE_PREFIXES
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, violation
from outbox_kit.rules import Finding

Names = Callable[[LintInput], Iterable[tuple[Hashable, str]]]
"""(scope, name) of each object of a pipeline; the scope is the server or cluster in which the name is unique."""
RULES = LintRules()


def _unique(kind: str, names: Names, reason: str, same: Callable[[LintInput], Hashable] = id) -> None:
    """Add `lint.unique.KIND`. Inputs with an equal value of `same` are left to another rule."""

    @RULES.across(f"unique.{kind.replace(' ', '-')}", f"no two pipeline files have the same {kind}", reason=reason)
    def check(inputs: Sequence[LintInput]) -> Iterator[Finding]:
        users: dict[tuple[Hashable, str], list[LintInput]] = defaultdict(list)
        for lint_input in inputs:
            for scope_and_name in dict.fromkeys(names(lint_input)):
                users[scope_and_name].append(lint_input)
        for (_, name), sharing in users.items():
            if len({same(lint_input) for lint_input in sharing}) > 1:
                labels = ", ".join(lint_input.label or lint_input.pipeline.name for lint_input in sharing)
                yield violation(f"{kind} {name}: {labels}", "in one pipeline file", f"give one of them another {kind}")


def _server(lint_input: LintInput) -> Hashable:
    return lint_input.environment.source.host, lint_input.environment.source.port


def _database(lint_input: LintInput) -> Hashable:
    return _server(lint_input), lint_input.environment.source.database


def _cluster(lint_input: LintInput) -> Hashable:
    return lint_input.environment.kafka.bootstrap_servers


def _sources(lint_input: LintInput, *, messages: bool) -> list[tuple[Hashable, str]]:
    prefix = lint_input.config.get(MESSAGE_PREFIXES)
    name = prefix or lint_input.pipeline.source.table
    return [(_database(lint_input), name)] if bool(prefix) is messages else []


def _materialized_tables(lint_input: LintInput) -> Iterator[tuple[Hashable, str]]:
    for entry in lint_input.pipeline.materializations:
        target = lint_input.environment.targets.get(entry.target)
        if target is not None:
            yield repr(target), entry.table


_unique(
    "pipeline name",
    lambda lint_input: [(lint_input.environment.lock_folder, lint_input.pipeline.name)],
    "it is in the name of the lock file",
)
_unique(
    "connector",
    lambda lint_input: [(lint_input.environment.connect.url, lint_input.pipeline.connector.name)],
    "`apply` of the second would replace the config of the first",
)
_unique(
    "topic prefix",
    lambda lint_input: [(_cluster(lint_input), lint_input.pipeline.prefix)],
    "two connectors would share offsets, heartbeats and dead letters",
)
_unique(
    "replication slot",
    lambda lint_input: [(_server(lint_input), lint_input.pipeline.source.slot)],
    "each of two connectors on one slot silently misses rows that the other reads; the name is unique per server",
)
_unique(
    "publication",
    lambda lint_input: [(_database(lint_input), lint_input.pipeline.source.publication)],
    "`apply` of one would change what the other publishes",
)
_unique(
    "outbox table",
    partial(_sources, messages=False),
    "each row would be sent twice, and each pipeline would write dead letters for the other's types",
)
_unique("message prefix", partial(_sources, messages=True), "each message would be sent twice")
_unique(
    "topic",
    lambda lint_input: [(_cluster(lint_input), name) for name in lint_input.topics],
    "positions of two sources would be compared in one topic, and a later state could lose",
    same=lambda lint_input: lint_input.pipeline.prefix,
)
_unique("materialized table", _materialized_tables, "two topics would overwrite each other's rows")
