"""Rules for the `aggregate.*` keys of the transforms, which Connect does not validate."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from outbox_kit.connector_config import PARSE_PAYLOAD, ROUTER, Transform, parse_json, schema_versions
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, violation
from outbox_kit.pipeline import UNKNOWN
from outbox_kit.rules import Finding

VERSION = r"schema\.(?P<version>[A-Za-z0-9_-]+)"
AGGREGATE_KEYS = {
    ROUTER: (
        r"topic|partitions|partition\.field|payload\.format|unknown\.fields|tombstone\.event\.types"
        rf"|schema\.versions|{VERSION}(\.id)?"
    ),
    PARSE_PAYLOAD: rf"schema\.versions|{VERSION}",
}
RULES = LintRules()


def _with_aggregates(lint_input: LintInput) -> list[Transform]:
    return [transform for transform in lint_input.transforms if transform.class_name in AGGREGATE_KEYS]


@RULES.rule(
    "route.keys",
    "every `aggregate.*` key belongs to an aggregate and a schema version that the transform lists",
    reason="Connect does not validate these keys, and the task fails when it starts",
)
def keys(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _with_aggregates(lint_input):
        known = _known_keys(transform)
        for key in transform.settings:
            if key.startswith("aggregate.") and key not in known:
                near = difflib.get_close_matches(key, sorted(known), n=1)
                remedy = f"did you mean {near[0]}?" if near else "leave it out"
                yield violation(f"{transform.prefix}{key} is not used", "a known key", remedy)


def _known_keys(transform: Transform) -> set[str]:
    """Return the settings of the transform that belong to a listed aggregate and version."""
    known = set()
    for name in transform.aggregates:
        prefix = f"aggregate.{name}."
        labels = [version.label for version in schema_versions(transform, name)]
        for key in transform.settings:
            match = re.fullmatch(AGGREGATE_KEYS[transform.class_name], key.removeprefix(prefix))
            if key.startswith(prefix) and match and match["version"] in (None, "versions", *labels):
                known.add(key)
    return known


@RULES.rule(
    "route.schemas",
    "every aggregate whose payload is not text has schema versions in the transform, each an Avro record with an id",
    reason="payloads are encoded by them, and every record carries the id; the task does not start without them",
)
def schemas(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _with_aggregates(lint_input):
        for name in transform.aggregates:
            if transform.settings.get(f"aggregate.{name}.payload.format") == "text":
                continue
            prefix = f"{transform.prefix}aggregate.{name}.schema."
            versions = schema_versions(transform, name)
            if not versions:
                remedy = "list them as the templates of outbox-kit do"
                yield violation(f"{prefix}versions is not set", "labels, latest first", remedy)
            for version in versions:
                if version.text is None or not _is_record(version.text):
                    remedy = "render `version.text`"
                    yield violation(f"{prefix}{version.label} is not an Avro record", "a record schema", remedy)
                if transform.class_name == ROUTER and version.id != UNKNOWN and not version.id.isdecimal():
                    remedy = "render `version.id`"
                    yield violation(f"{prefix}{version.label}.id is not a number", "the registry's id", remedy)


def _is_record(text: str) -> bool:
    definition = parse_json(text)
    return isinstance(definition, dict) and definition.get("type") == "record"
