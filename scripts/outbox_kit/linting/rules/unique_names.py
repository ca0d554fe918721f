"""Define rules for names that only one pipeline can use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

from outbox_kit.connect.connector_config import MESSAGE_PREFIXES
from outbox_kit.linting.lint_rule import LintInput, LintRules, violation
from outbox_kit.results.checks import Finding

NamesFunction = Callable[[LintInput], Iterable[tuple[Hashable, str]]]
"""Function that returns (scope, name) for each object of a pipeline. A name must be unique in its scope."""
RULES = LintRules()


def _require_unique(kind: str, names: NamesFunction, reason: str, group: Callable[[LintInput], Hashable] = id) -> None:
    """Add the rule `lint.unique.KIND`. Inputs of one `group` can share a name, because another rule reports them."""

    @RULES.cross_input_rule(
        f"unique.{kind.replace(' ', '-')}", f"pipeline files do not use the same {kind}", reason=reason
    )
    def check(inputs: Sequence[LintInput]) -> Iterator[Finding]:
        inputs_by_name: dict[tuple[Hashable, str], list[LintInput]] = defaultdict(list)
        for lint_input in inputs:
            for scope_and_name in dict.fromkeys(names(lint_input)):
                inputs_by_name[scope_and_name].append(lint_input)
        for (_, name), inputs_with_name in inputs_by_name.items():
            if len({group(lint_input) for lint_input in inputs_with_name}) > 1:
                labels = ", ".join(lint_input.label or lint_input.pipeline.name for lint_input in inputs_with_name)
                yield violation(
                    f"{kind} {name} is in {labels}", "in one pipeline file", f"change the {kind} in all files but one"
                )


def _server_scope(lint_input: LintInput) -> Hashable:
    return lint_input.environment.source.host, lint_input.environment.source.port


def _database_scope(lint_input: LintInput) -> Hashable:
    return _server_scope(lint_input), lint_input.environment.source.database


def _cluster_scope(lint_input: LintInput) -> Hashable:
    return lint_input.environment.kafka.bootstrap_servers


def _event_sources(lint_input: LintInput, *, messages: bool) -> list[tuple[Hashable, str]]:
    prefix = lint_input.config.get(MESSAGE_PREFIXES)
    name = prefix or lint_input.pipeline.source.table
    return [(_database_scope(lint_input), name)] if bool(prefix) is messages else []


def _materialized_tables(lint_input: LintInput) -> Iterator[tuple[Hashable, str]]:
    for entry in lint_input.pipeline.materializations:
        target = lint_input.environment.targets.get(entry.target)
        if target is not None:
            yield repr(target), entry.table


_require_unique(
    "pipeline name",
    lambda lint_input: [(lint_input.environment.lock_folder, lint_input.pipeline.name)],
    "both pipelines would write the same lock file",
)
_require_unique(
    "connector",
    lambda lint_input: [(lint_input.environment.connect.url, lint_input.pipeline.connector.name)],
    "`apply` of one pipeline would replace the config of the other",
)
_require_unique(
    "topic prefix",
    lambda lint_input: [(_cluster_scope(lint_input), lint_input.pipeline.prefix)],
    "two connectors would share offsets, heartbeats and dead letters",
)
_require_unique(
    "replication slot",
    lambda lint_input: [(_server_scope(lint_input), lint_input.pipeline.source.slot)],
    "two connectors on one slot lose rows, because each row reaches only one of them; a slot name is unique per server",
)
_require_unique(
    "publication",
    lambda lint_input: [(_database_scope(lint_input), lint_input.pipeline.source.publication)],
    "`apply` of one pipeline would change the publication of the other",
)
_require_unique(
    "outbox table",
    partial(_event_sources, messages=False),
    "each row would be sent twice, or become a dead letter of the pipeline without the row's aggregate type",
)
_require_unique("message prefix", partial(_event_sources, messages=True), "both connectors would send each message")
_require_unique(
    "topic",
    lambda lint_input: [(_cluster_scope(lint_input), name) for name in lint_input.topics],
    "LSNs of two databases are not comparable: an older state could replace a newer state",
    group=lambda lint_input: lint_input.pipeline.prefix,
)
_require_unique("materialized table", _materialized_tables, "two topics would overwrite each other's rows")
