"""Rule for the OutboxRouter options that the pipeline file sets. A copy of an older template may lack them."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_kit.connect.connector_config import split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, mismatch
from outbox_kit.pipeline import Aggregate, Source
from outbox_kit.results.checks import Finding

# Defaults of OutboxRouter; all other options of this rule are empty by default.
OPTION_DEFAULTS = {
    "table.op.invalid.behavior": "fatal",
    "deleted.rows": "fail",
    "payload.format": "json",
    "unknown.fields": "refuse",
}
PLACEMENT_OPTION = "table.fields.additional.placement"
LIST_OPTIONS = {PLACEMENT_OPTION, "tombstone.event.types"}
RULES = LintRules()


@RULES.rule(
    "route.options",
    "OutboxRouter has the options for rows, payloads and headers that the pipeline file sets",
    reason="a copy of an older template lacks new options, and the router then does not apply them",
)
def check_options(lint_input: LintInput) -> Iterator[Finding]:
    for router in lint_input.routers:
        expected = {("", option): value for option, value in _source_options(lint_input.pipeline.source).items()}
        for name in router.aggregates:
            aggregate = lint_input.pipeline.routed.get(name)
            if aggregate is not None:
                expected |= {(f"aggregate.{name}.", key): value for key, value in _aggregate_options(aggregate).items()}
        for (option_prefix, option), value in expected.items():
            actual = router.settings.get(option_prefix + option, OPTION_DEFAULTS.get(option, "")).strip()
            if _normalized(option, actual) != _normalized(option, value):
                yield mismatch(router.prefix + option_prefix + option, actual, value)


def _source_options(source: Source) -> dict[str, str]:
    """Return the expected options of the source; an empty value means that the option is not set."""
    return {
        PLACEMENT_OPTION: ",".join(f"{column}:header:{name}" for column, name in source.header_columns.items()),
        "cloudevents.source": source.cloudevents_source or "",
        "table.op.invalid.behavior": "fatal" if source.updated_rows == "fail" else source.updated_rows,
        "deleted.rows": source.deleted_rows,
    }


def _aggregate_options(aggregate: Aggregate) -> dict[str, str]:
    return {
        "payload.format": aggregate.payload,
        "unknown.fields": aggregate.unknown_fields,
        "tombstone.event.types": ",".join(aggregate.tombstone_event_types),
    }


def _normalized(option: str, text: str) -> object:
    """Return an equal value for equivalent lists: in any order, COLUMN:header with or without :COLUMN."""
    if option not in LIST_OPTIONS:
        return text
    list_items = split_list(text)
    if option == PLACEMENT_OPTION:
        list_items = [f"{item}:{item.split(':')[0]}" if item.count(":") == 1 else item for item in list_items]
    return sorted(list_items)
