"""The `aggregate.*` keys of our transforms: Connect does not validate them, the task refuses them when it starts."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from outbox_kit.connector_config import PARSE_PAYLOAD, ROUTER, Transform, items
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule
from outbox_kit.pipeline import UNKNOWN

VERSION = r"schema\.(?P<version>[A-Za-z0-9_-]+)"
TEXT = "text"  # passed on without a schema
AGGREGATE_KEYS = {
    ROUTER: (
        r"topic|partitions|partition\.field|payload\.format|unknown\.fields|tombstone\.event\.types"
        rf"|schema\.versions|{VERSION}(\.id)?"
    ),
    PARSE_PAYLOAD: rf"schema\.versions|{VERSION}",
}


def _of_aggregates(target: Target) -> Iterator[tuple[Transform, str, str]]:
    """Transforms of ours, and each aggregate that they list, with the beginning of its keys."""
    for transform in target.transforms:
        if transform.kind in AGGREGATE_KEYS:
            for name in items(transform.settings.get("aggregates", "")):
                yield transform, name, f"aggregate.{name}."


@rule(
    "route.keys",
    "every `aggregate.*` key belongs to an aggregate and a schema version that the transform lists",
    why="Connect's validation does not see these keys; the task refuses to start",
)
def keys(target: Target) -> Iterator[Finding]:
    known: dict[str, set[str]] = {}
    for transform, _, prefix in _of_aggregates(target):
        versions = items(transform.settings.get(f"{prefix}schema.versions", ""))
        legal = known.setdefault(transform.alias, set())
        for key in transform.settings:
            match = re.fullmatch(AGGREGATE_KEYS[transform.kind], key.removeprefix(prefix))
            if key.startswith(prefix) and match and match["version"] in (None, "versions", *versions):
                legal.add(key)
    for transform in target.transforms:
        legal = known.get(transform.alias, set())
        for key in transform.settings:
            if key.startswith("aggregate.") and transform.kind in AGGREGATE_KEYS and key not in legal:
                near = difflib.get_close_matches(key, sorted(legal), n=1)
                remedy = f"did you mean {near[0]}?" if near else "leave it out"
                yield Finding(f"transforms.{transform.alias}.{key} belongs to nothing", "a known key", remedy)


@rule(
    "route.schemas",
    "every aggregate of our transforms but those of text has schema versions, each an Avro record with an id",
    why="payloads are encoded by them, and the id stands in every record; the task refuses to start without",
)
def schemas(target: Target) -> Iterator[Finding]:
    for transform, _, prefix in _of_aggregates(target):
        if transform.settings.get(f"{prefix}payload.format") == TEXT:
            continue
        where = f"transforms.{transform.alias}.{prefix}schema."
        versions = items(transform.settings.get(f"{prefix}schema.versions", ""))
        if not versions:
            yield Finding(f"{where}versions is not set", "labels, newest first", "list them as our templates do")
        for version in versions:
            text = transform.settings.get(f"{prefix}schema.{version}")
            if text is None or not _is_record(text):
                yield Finding(f"{where}{version} is no Avro record", "a record schema", "render `version.text`")
            number = transform.settings.get(f"{prefix}schema.{version}.id", "")
            if transform.kind == ROUTER and number != UNKNOWN and not number.isdecimal():
                yield Finding(f"{where}{version}.id is no number", "the registry's id", "render `version.id`")


def _is_record(text: str) -> bool:
    try:
        definition = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(definition, dict) and definition.get("type") == "record"


RULES = (keys, schemas)
