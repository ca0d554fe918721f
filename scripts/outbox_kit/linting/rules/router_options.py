"""Options of OutboxRouter that the pipeline file sets: a template copied from an older one does not hand them on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from outbox_kit.connector_config import ROUTER, items
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule
from outbox_kit.pipeline import Aggregate, Source

UNSET = "(not set)"
# The router's defaults; of what is not here, nothing.
DEFAULTS = {
    "table.op.invalid.behavior": "fatal",
    "deleted.rows": "fail",
    "payload.format": "json",
    "unknown.fields": "refuse",
}
PLACEMENT = "table.fields.additional.placement"
LISTS = {PLACEMENT, "tombstone.event.types"}


@rule(
    "route.options",
    "what the pipeline file says of rows, payloads and headers is what OutboxRouter is told",
    why="a template copied from an older one leaves new options out: the file says one thing, and rows get another",
)
def options(target: Target) -> Iterator[Finding]:
    source = target.pipeline.source
    for transform in target.transforms:
        if transform.kind != ROUTER:
            continue
        where = f"transforms.{transform.alias}."
        yield from _differences(where, transform.settings, _of_source(source))
        for name in items(transform.settings.get("aggregates", "")):
            entry = target.pipeline.routed.get(name)
            if entry is not None:
                yield from _differences(where, transform.settings, _of_aggregate(entry), f"aggregate.{name}.")


def _of_source(source: Source) -> dict[str, str]:
    """What a rendered config has to say, by option; empty: nothing."""
    return {
        PLACEMENT: ",".join(f"{column}:header:{name}" for column, name in source.header_columns.items()),
        "cloudevents.source": source.cloudevents_source or "",
        "table.op.invalid.behavior": "fatal" if source.updated_rows == "fail" else source.updated_rows,
        "deleted.rows": source.deleted_rows,
    }


def _of_aggregate(entry: Aggregate) -> dict[str, str]:
    return {
        "payload.format": entry.payload,
        "unknown.fields": entry.unknown_fields,
        "tombstone.event.types": ",".join(entry.tombstone_event_types),
    }


def _differences(
    where: str, settings: Mapping[str, str], wanted: Mapping[str, str], prefix: str = ""
) -> Iterator[Finding]:
    for option, expected in wanted.items():
        seen = settings.get(f"{prefix}{option}", DEFAULTS.get(option, "")).strip()
        if _meaning(option, seen) != _meaning(option, expected):
            key = f"{where}{prefix}{option}"
            remedy = f"set {key} to {expected}" if expected else f"leave {key} out"
            yield Finding(f"{key}={seen or UNSET}", expected or UNSET, f"{remedy}, as the kit's own template does")


def _meaning(option: str, text: str) -> object:
    """Equal where the router does the same: lists in any order, a header that has its column's name."""
    if option not in LISTS:
        return text
    found = items(text)
    if option == PLACEMENT:
        found = [f"{item}:{item.split(':')[0]}" if item.count(":") == 1 else item for item in found]
    return sorted(found)


RULES = (options,)
