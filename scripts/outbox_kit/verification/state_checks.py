"""Define the checks of `verify --states`. They test whether the topics contain the newest state of every aggregate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from fastavro.schema import fullname

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_events.kafka.topic_reader import read_record
from outbox_events.text import plural, shortened_list
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import client_settings
from outbox_kit.operations.state_comparison import ComparisonResult, StateComparison, StuckAggregate
from outbox_kit.pipeline import Pipeline
from outbox_kit.pipeline.schema_references import inlined_schema
from outbox_kit.postgres.aggregate_queries import UnreadableStatesError
from outbox_kit.results import Reporter
from outbox_kit.results.checks import Check, Finding, Rule, Rules, Severity, evaluate, skip_rules
from outbox_kit.results.repair_commands import backfill_steps, republish_command
from outbox_kit.verification.cross_checks import SAME_ORDER, UNSEQUENCED_REMEDY, unsequenced_finding
from outbox_kit.verification.stuck_causes import likely_causes, sequence_repair

OLDER_THAN_S = 60.0
MAX_DEAD_LETTERS = 10_000
MAX_LISTED = 5
COMPLETE_REMEDY = "run `outbox status` and fix what it reports, then run `outbox stuck --resend`"


@dataclass(frozen=True)
class ComparedStates:
    """Result of comparing a pipeline's states."""

    pipeline: Pipeline
    result: ComparisonResult
    causes: list[str] = field(default_factory=list)
    sequence_repair: str = ""


@dataclass(frozen=True)
class StateSchemas:
    """Descriptions of wrong schema ids in states, by aggregate type. A wrong id identifies no schema of its type."""

    pipeline: Pipeline
    wrong_ids: dict[str, list[str]]


@dataclass(frozen=True)
class StaleDeadLetters:
    """Dead letters, acknowledged or not, whose aggregate has only an older state or no state on its topic."""

    pipeline: Pipeline
    dead_letters: list[DeadLetter]


COMPARISON_RULES = Rules[ComparedStates]()
SCHEMA_RULES = Rules[StateSchemas]()
SEQUENCE_RULES = Rules[StateComparison]()
DEAD_LETTER_RULES = Rules[StaleDeadLetters]()


@COMPARISON_RULES.rule(
    "states.compared",
    condition="every aggregate type can be compared, because it has a `backfill` or sufficiently old outbox rows",
    remedy="set aggregates.TYPE.backfill in the pipeline file; see docs/backfill.md",
    severity=Severity.WARNING,
)
def _compared(states: ComparedStates) -> Finding:
    names = states.result.uncompared_types(states.pipeline.aggregates)
    expected = "every aggregate type is compared"
    return Finding(not names, f"not compared: {', '.join(names)}" if names else expected, expected)


@COMPARISON_RULES.rule(
    "states.complete",
    condition="the newest state of every aggregate is on its topic, after older states and in the correct partition; "
    "topics do not contain states without an aggregate",
    remedy=COMPLETE_REMEDY,
)
def _complete(states: ComparedStates) -> Finding:
    stuck = [entry for entry in states.result.stuck if entry.kind != "different" or entry.ahead]
    expected = "the newest state of every aggregate on its topic"
    count = sum(len(keys) for keys in states.result.compared_keys.values())
    if not states.result.compared_keys:
        return Finding(None, "no aggregate type was compared", expected)
    if not stuck:
        return Finding(True, f"{plural(count, 'aggregate')} compared", expected)
    texts = [f"{entry.aggregate_type} {entry.key} ({entry.kind})" for entry in stuck]
    actual = f"{plural(len(stuck), 'stuck aggregate')}: {shortened_list(texts, MAX_LISTED)}; {count} compared"
    behind = ["the sequence of column seq is behind the table's rows"] if states.sequence_repair else []
    actual = "; ".join([actual, *behind, *states.causes])
    remedy = _ahead_remedy(states) or stuck_remedy(states.pipeline, states.result.stuck)
    if behind:
        remedy = f"run `{states.sequence_repair}`, then {remedy}"
    return Finding(False, actual, expected, remedy)


def _ahead_remedy(states: ComparedStates) -> str:
    """Return the commands that make the next events newer than every record, or "" if no record is ahead."""
    types = sorted({entry.aggregate_type for entry in states.result.stuck if entry.ahead})
    if not types:
        return ""
    steps = f"run `outbox apply --recover`; then {backfill_steps(states.pipeline, types)}"
    return f"stop the other source; {steps}; then {stuck_remedy(states.pipeline, states.result.stuck)}"


def stuck_remedy(pipeline: Pipeline, stuck: Collection[StuckAggregate]) -> str:
    """Return the commands that send the states again, with the limit for the tombstones that the commands write."""
    aggregates = pipeline.aggregates
    types = sorted({entry.aggregate_type for entry in stuck})
    names = ", ".join(name for name in types if aggregates[name].backfill is None)
    if names:
        return (
            f"run `outbox status` and fix what it reports, then have the service write the states of {names} again; or "
            "set `backfill` for these aggregate types, and run `outbox stuck --resend`"
        )
    # If an aggregate was deleted, its state in the outbox table also becomes a tombstone.
    deleted = Counter(entry.aggregate_type for entry in stuck if entry.kind == "ghost")
    misplaced = Counter({name: 0 for name in types})
    for entry in stuck:
        misplaced[entry.aggregate_type] += len(entry.partitions)
    limit = max(*Counter(entry.aggregate_type for entry in stuck).values(), *misplaced.values())
    command = f"`outbox stuck --resend --max-deletions {limit}`, which asks before it writes"
    if not deleted and not any(misplaced.values()):
        return COMPLETE_REMEDY
    if not deleted:
        return f"run `outbox status` and fix what it reports, then run {command} tombstones into wrong partitions"
    tables = ", ".join(f"{count} of {name} from {_table(pipeline, name)}" for name, count in sorted(deleted.items()))
    return (
        f"run `outbox status` and fix what it reports; if these aggregates were deleted on purpose ({tables}), run "
        f"{command} their tombstones"
    )


def _table(pipeline: Pipeline, aggregate_type: str) -> str:
    backfill = pipeline.aggregates[aggregate_type].backfill
    return backfill.table if backfill else "no table"


@COMPARISON_RULES.rule(
    "states.equal",
    condition="the records have the values that the `backfill` queries return (for a sample of each type's keys)",
    remedy="if a field was added to the schema, run `outbox backfill --restart`; otherwise find the cause of row "
    "changes without an event, or of old states in the outbox, and run `outbox stuck --resend`, or `outbox backfill "
    "--restart` if only a sample was compared",
)
def _equal(states: ComparedStates) -> Finding:
    result, expected = states.result, "the records have the values of the business tables"
    different = [entry for entry in result.stuck if entry.kind == "different"]
    count = sum(result.value_counts.values())
    if not count:
        return Finding(None, "no value was compared: aggregate types with JSON payloads have no `backfill`", expected)
    if not different:
        return Finding(True, f"{plural(count, 'value')} compared", expected)
    has_ahead = any(entry.ahead for entry in different)
    texts = [f"{entry.aggregate_type} {entry.key} ({', '.join(entry.fields)})" for entry in different]
    listed = shortened_list(texts, MAX_LISTED)
    is_sample = any(entry.aggregate_type in result.sampled_types for entry in different)
    command = "`outbox backfill --restart`" if is_sample else "`outbox stuck --resend`"
    remedy = (
        f"if a field was added to the schema, run {command}; otherwise find the statement that changed rows without "
        "an event, or the service that wrote an old state to the outbox (check the order of the event and the row "
        f"lock), and run {command}"
    )
    actual = f"{len(different)} of {plural(count, 'value')} differ: {listed}"
    return Finding(False, actual, expected, "see states.complete" if has_ahead else remedy)


@SCHEMA_RULES.rule(
    "states.schema-ids",
    condition="the registry resolves the schema id of every state to a schema of the state's aggregate type",
    remedy="restore the lost schemas with these ids in the registry; otherwise run `outbox apply`, then "
    "`outbox backfill --restart`",
)
def _schema_ids(schemas: StateSchemas) -> Finding:
    expected = "schema ids of the aggregate type"
    texts = [text for texts in schemas.wrong_ids.values() for text in texts]
    steps = backfill_steps(schemas.pipeline, sorted(schemas.wrong_ids))
    remedy = f"restore the lost schemas with these ids in the registry; otherwise run `outbox apply`; then {steps}"
    return Finding(not texts, "; ".join(texts) or expected, expected, remedy)


@DEAD_LETTER_RULES.rule(
    "states.dead-letters",
    condition="dead letters, acknowledged or not, are not newer than the state of their aggregate on the topic",
    remedy="run `outbox dead-letter list --all`, fix the cause, and run "
    "`outbox republish AGGREGATE --key KEY` for their keys",
)
def _dead_letters(stale: StaleDeadLetters) -> Finding:
    dead_letters, expected = stale.dead_letters, "no dead letter is newer than the state of its aggregate"
    if not dead_letters:
        return Finding(True, expected, expected)
    texts = [
        f"{dead_letter.place} {dead_letter.aggregate_type} {dead_letter.key} ({dead_letter.reason or 'no reason'})"
        for dead_letter in dead_letters
    ]
    actual = f"{plural(len(dead_letters), 'dead letter')}: {shortened_list(texts, MAX_LISTED)}"
    return Finding(False, actual, expected, _resend_remedy(stale))


def _resend_remedy(stale: StaleDeadLetters) -> str:
    """Return the commands that send the states of the first listed aggregate type again."""
    name = stale.dead_letters[0].aggregate_type
    if stale.pipeline.aggregates[name].backfill is None:
        return f"fix the cause of {stale.dead_letters[0].place}, then have the service write the states of {name} again"
    keys = dict.fromkeys(
        dead_letter.key for dead_letter in stale.dead_letters[:MAX_LISTED] if dead_letter.aggregate_type == name
    )
    command = republish_command(name, keys)
    return f"run `outbox dead-letter show {stale.dead_letters[0].place}`, fix the cause, and run `{command}`"


@SEQUENCE_RULES.rule(
    "states.source-sequence",
    condition=SAME_ORDER,
    remedy=UNSEQUENCED_REMEDY,
    severity=Severity.WARNING,
)
def _source_sequence(comparison: StateComparison) -> Finding:
    deployment = comparison.deployment
    settings, found = client_settings(deployment.environment.kafka), dict[str, dict[tuple[int, int], str]]()
    for topic in map(comparison.topic, deployment.pipeline.aggregates):
        topic.read(seconds=comparison.seconds)
        # With --every, the log cleaner might have removed a record since it was read.
        keys = topic.unsequenced.keys.items()
        found[topic.topic] = {place: key for place, key in keys if read_record(settings, topic.topic, *place)}
    return unsequenced_finding(deployment, found)


def read_wrong_ids(comparison: StateComparison, aggregate_types: Collection[str]) -> dict[str, list[str]]:
    """Describe the wrong schema ids in states, by aggregate type. A wrong id does not identify a schema of the type.

    After the registry was rebuilt, an id can belong to another schema. Readers then cannot decode states, or decode
    them incorrectly. Raises UnreachableError, RejectedError.
    """
    aggregates = comparison.deployment.pipeline.with_schemas
    found = {
        name: _wrong_ids(comparison, name, _record_name(inlined_schema(aggregates[name])))
        for name in aggregates
        if name in aggregate_types
    }
    return {name: texts for name, texts in found.items() if texts}


def _wrong_ids(comparison: StateComparison, aggregate_type: str, expected_name: str) -> list[str]:
    states = (record for record in comparison.topic(aggregate_type).by_key.values() if record.has_state)
    ids = Counter(record.schema_id for record in states)
    counts = {schema_id: count for schema_id, count in ids.items() if schema_id is not None}
    # If no value of a topic contains a schema id, a converter with another format wrote the values.
    unreadable_count = ids[None] if counts else 0
    problems = [f"{plural(unreadable_count, 'state')} of {aggregate_type} without a schema id"] * bool(unreadable_count)
    for schema_id, count in sorted(counts.items()):
        schema = comparison.deployment.registry.by_id(schema_id)
        name = _record_name(schema.text) if schema else ""
        if name != expected_name:
            actual = f"the schema of {name}" if schema else "not in the registry"
            problems.append(f"{plural(count, 'state')} of {aggregate_type} with id {schema_id}, which is {actual}")
    return problems


def _record_name(text: str) -> str:
    """Return the full name of a schema's type, or the schema's JSON if the type does not have a name."""
    schema = json.loads(text)
    return str(fullname(schema)) if isinstance(schema, dict) and "name" in schema else text


RULES: list[Rule[Any]] = [*COMPARISON_RULES, *SCHEMA_RULES, *SEQUENCE_RULES, *DEAD_LETTER_RULES]


def comparison_of(deployment: Deployment, *, seconds: float, max_records: int) -> StateComparison:
    """Return a comparison for the checks. `seconds` limits each run.

    The comparison logs in as `source.admin`, because `source.verifier` cannot read payloads and business tables.
    """
    return StateComparison(deployment, OLDER_THAN_S, seconds, max_records)


def check(comparison: StateComparison, progress: Reporter, *, canary_arrived: bool = False) -> list[Check]:
    """Compare the states and return the checks. Checks are unknown if the comparison exceeds its limits or fails.

    `canary_arrived` means that a canary that was sent before the comparison has arrived.
    """
    pipeline = comparison.deployment.pipeline
    if not pipeline.source.uses_table:
        return skip_rules(RULES, "there is no outbox table: events are messages (source.message_prefix)")
    try:
        result = comparison.run(progress)
    except (UnreadableStatesError, ConfigurationError) as error:
        # These errors persist until the cause is fixed. Until then, a skipped comparison would hide wrong states.
        finding = Finding(False, error.message, "the states of every aggregate can be read", error.hint, Severity.ERROR)
        compared_rule, *other_rules = RULES
        return [compared_rule.check(finding), *skip_rules(other_rules, f"see {compared_rule.id}")]
    except OutboxError as error:
        return skip_rules(RULES, _reason(error))
    causes = likely_causes(comparison, result, canary_arrived=canary_arrived)
    compared_states = ComparedStates(pipeline, result, causes, sequence_repair(comparison, result))
    checks = evaluate(COMPARISON_RULES, compared_states)
    try:
        wrong_ids = read_wrong_ids(comparison, result.compared_keys)
        checks += evaluate(SCHEMA_RULES, StateSchemas(pipeline, wrong_ids))
    except OutboxError as error:
        checks += skip_rules(SCHEMA_RULES, _reason(error))
    try:
        checks += evaluate(SEQUENCE_RULES, comparison)
    except OutboxError as error:
        checks += skip_rules(SEQUENCE_RULES, _reason(error))
    progress("compare dead letters with the topics")
    try:
        dead_letters = _stale_dead_letters(comparison, result)
    except OutboxError as error:
        return [*checks, *skip_rules(DEAD_LETTER_RULES, _reason(error))]
    return [*checks, *evaluate(DEAD_LETTER_RULES, StaleDeadLetters(pipeline, dead_letters))]


def _stale_dead_letters(comparison: StateComparison, result: ComparisonResult) -> list[DeadLetter]:
    """Return the dead letters whose aggregates are stale. Raises RefusedError if there are too many dead letters."""
    deployment = comparison.deployment
    topic, limit = deployment.dead_letters(), MAX_DEAD_LETTERS + 1
    dead_letters = topic.read(list_all=True, limit=limit, seconds=comparison.seconds)
    if len(dead_letters) > MAX_DEAD_LETTERS:
        message = f"topic {topic.name} has more than {MAX_DEAD_LETTERS} records"
        raise RefusedError(message, "reduce the retention of this topic")
    dead_letters = [
        dead_letter for dead_letter in dead_letters if dead_letter.aggregate_type in deployment.pipeline.aggregates
    ]
    for name in {dead_letter.aggregate_type for dead_letter in dead_letters} - set(result.compared_keys):
        comparison.topic(name).read(seconds=comparison.seconds)
    stuck_keys = {(entry.aggregate_type, entry.key) for entry in result.stuck}
    return [
        dead_letter
        for dead_letter in dead_letters
        if (dead_letter.aggregate_type, dead_letter.key) in stuck_keys or _is_newer(dead_letter, comparison, result)
    ]


def _is_newer(dead_letter: DeadLetter, comparison: StateComparison, result: ComparisonResult) -> bool:
    """Return whether the dead letter is newer than its aggregate's state, or the only evidence of the aggregate."""
    name, key = dead_letter.aggregate_type, dead_letter.key
    record = comparison.topic(name).by_key.get(key)
    if record is not None:
        return record.version < dead_letter.version
    # If the aggregate has no `backfill` and no outbox row, it is not known whether the aggregate was deleted later.
    backfill = comparison.deployment.pipeline.aggregates[name].backfill
    return bool(key) and backfill is None and key not in result.compared_keys.get(name, set())


def _reason(error: OutboxError) -> str:
    return "; ".join(filter(None, (error.message, error.hint)))
