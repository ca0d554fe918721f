"""What only one pipeline may have, among all that are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from outbox_kit.connector_config import MESSAGES
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, Rule, rule_across

Owned = Callable[[Target], Iterable[tuple[Hashable, str]]]
"""(where it must be unique, name) of each thing that a pipeline has."""


@dataclass(frozen=True)
class Unique:
    """One kind of thing; `owned` also says in which server or cluster it must be the only one.

    Targets that are alike by `unless` are another rule's business.
    """

    name: str
    owned: Owned
    why: str
    unless: Callable[[Target], Hashable] = id

    @property
    def rule(self) -> Rule:
        """`lint.unique.NAME`."""
        demands = f"no two pipeline files have the same {self.name}"
        return rule_across(f"unique.{self.name.replace(' ', '-')}", demands, why=self.why)(self.look)

    def look(self, targets: Sequence[Target]) -> Iterator[Finding]:
        owners: dict[tuple[Hashable, str], list[Target]] = defaultdict(list)
        for target in targets:
            for thing in dict.fromkeys(self.owned(target)):
                owners[thing].append(target)
        for (_, name), found in owners.items():
            if len({self.unless(target) for target in found}) > 1:
                labels = ", ".join(target.label or target.pipeline.name for target in found)
                yield Finding(
                    f"{self.name} {name}: {labels}", "in one pipeline file", f"give one of them another {self.name}"
                )


def _server(target: Target) -> Hashable:
    return target.environment.source.host, target.environment.source.port


def _database(target: Target) -> Hashable:
    return _server(target), target.environment.source.database


def _cluster(target: Target) -> Hashable:
    return target.environment.kafka.bootstrap_servers


def _prefix(target: Target) -> str:
    """Of logical messages, in the variant without a table."""
    return target.config.get(MESSAGES, "")


UNIQUE = (
    Unique(
        "pipeline name",
        lambda target: [(target.environment.lock_folder, target.pipeline.name)],
        "the lock file is found by it",
    ),
    Unique(
        "connector",
        lambda target: [(target.environment.connect.url, target.pipeline.connector.name)],
        "the second `apply` would turn the first one's connector into its own",
    ),
    Unique(
        "topic prefix",
        lambda target: [(_cluster(target), target.pipeline.prefix)],
        "offsets, heartbeats and dead letters of two connectors would be the same",
    ),
    Unique(
        "replication slot",
        lambda target: [(_server(target), target.pipeline.source.slot)],
        "two connectors on one slot take each other's rows, in silence; names count for the whole server",
    ),
    Unique(
        "publication",
        lambda target: [(_database(target), target.pipeline.source.publication)],
        "`apply` of one would change what the other publishes",
    ),
    Unique(
        "outbox table",
        lambda target: [(_database(target), target.pipeline.source.table)] if not _prefix(target) else [],
        "each row would be sent twice, and each pipeline would make dead letters of the other's types",
    ),
    Unique(
        "message prefix",
        lambda target: [(_database(target), _prefix(target))] if _prefix(target) else [],
        "each message would be sent twice",
    ),
    Unique(
        "topic",
        lambda target: [(_cluster(target), name) for name in target.topics],
        "two orders of positions would meet in one topic, and the newer state could lose",
        unless=lambda target: target.pipeline.prefix,
    ),
    Unique(
        "materialized table",
        lambda target: [
            (repr(found), entry.table)
            for entry in target.pipeline.materializations
            for found in [target.environment.targets.get(entry.target)]
            if found is not None
        ],
        "two topics would overwrite each other's rows",
    ),
)

RULES = tuple(entry.rule for entry in UNIQUE)
