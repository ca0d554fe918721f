"""Rules for the `aggregate.*` settings of transforms. These contain schemas, and Connect does not validate them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from outbox_kit.connector_config import PARSE_PAYLOAD, ROUTER, Transform, parse_json, schema_texts, schema_versions
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, suggestion, violation
from outbox_kit.pipeline import UNKNOWN
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.rules import Finding, Severity

VERSION = r"schema\.(?P<version>[A-Za-z0-9_-]+)"
AGGREGATE_KEYS = {
    ROUTER: (
        r"topic|partitions|partition\.field|payload\.format|unknown\.fields|tombstone\.event\.types"
        rf"|schema\.versions|{VERSION}(\.id)?"
    ),
    PARSE_PAYLOAD: rf"schema\.versions|{VERSION}",
}
RULES = LintRules()


def _transforms_with_aggregates(lint_input: LintInput) -> list[Transform]:
    return [transform for transform in lint_input.transforms if transform.class_name in AGGREGATE_KEYS]


@RULES.rule(
    "route.keys",
    "every `aggregate.*` key belongs to an aggregate and a schema version that the transform lists",
    reason="Connect does not validate these keys, and the task fails when it starts",
)
def unknown_aggregate_keys(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _transforms_with_aggregates(lint_input):
        known_keys = _known_keys(transform)
        for key in transform.settings:
            if key.startswith("aggregate.") and key not in known_keys:
                yield violation(f"{transform.prefix}{key} is not used", "a known key", suggestion(key, known_keys))


def _known_keys(transform: Transform) -> set[str]:
    """Return the keys of the settings that belong to a listed aggregate and a listed schema version."""
    known_keys = set()
    for name in transform.aggregates:
        prefix = f"aggregate.{name}."
        labels = [version.label for version in schema_versions(transform, name)]
        for key in transform.settings:
            match = re.fullmatch(AGGREGATE_KEYS[transform.class_name], key.removeprefix(prefix))
            if key.startswith(prefix) and match and match["version"] in (None, "versions", *labels):
                known_keys.add(key)
    return known_keys


@RULES.rule(
    "route.schemas",
    "every aggregate whose payload is not text has schema versions, and each version is an Avro record with an id",
    reason="payloads are encoded with the schemas, and records contain the id; without schemas the task does not start",
)
def schema_version_keys(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _transforms_with_aggregates(lint_input):
        for name in transform.aggregates:
            if transform.settings.get(f"aggregate.{name}.payload.format") == "text":
                continue
            prefix = f"{transform.prefix}aggregate.{name}.schema."
            versions = schema_versions(transform, name)
            if not versions:
                remedy = "list the schema versions as in the templates of outbox-kit"
                yield violation(f"{prefix}versions is not set", "labels, latest first", remedy)
            for version in versions:
                if version.text is None or not _is_record(version.text):
                    remedy = "use `version.text` in the template"
                    yield violation(f"{prefix}{version.label} is not an Avro record", "a record schema", remedy)
                if transform.class_name == ROUTER and version.id != UNKNOWN and not version.id.isdecimal():
                    remedy = "use `version.id` in the template"
                    yield violation(f"{prefix}{version.label}.id is not a number", "the registry's id", remedy)


def _is_record(text: str) -> bool:
    definition = parse_json(text)
    return isinstance(definition, dict) and definition.get("type") == "record"


@RULES.rule(
    "schema.docs",
    "schemas in the connector config contain no `doc`",
    reason="`doc` does not affect the encoding, and the size of a connector config is limited",
    severity=Severity.WARNING,
)
def schema_docs(lint_input: LintInput) -> Iterator[Finding]:
    for key, text in schema_texts(lint_input.config):
        if len(without_docs(text)) < len(json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)):
            yield violation(f"{key} contains `doc`", "no `doc`", "use `version.text` in the template")
