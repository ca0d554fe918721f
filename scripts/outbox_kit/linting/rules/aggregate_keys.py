"""Define rules for the `aggregate.*` settings of OutboxRouter and ParsePayload, which Connect does not validate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from outbox_events.schemas.avro_schema import compact
from outbox_kit.connect.connector_config import (
    PARSE_PAYLOAD,
    ROUTER,
    Transform,
    parse_json,
    schema_texts,
    schema_versions,
)
from outbox_kit.linting.lint_rule import LintInput, LintRules, suggestion, violation
from outbox_kit.linting.union_branches import Ambiguity, find_ambiguities
from outbox_kit.pipeline import UNKNOWN
from outbox_kit.pipeline.avro import SCHEMA_ERRORS, without_docs
from outbox_kit.pipeline.model import SCHEMALESS_FORMATS
from outbox_kit.results.checks import Finding, Severity

VERSION_PATTERN = r"schema\.(?P<version>[A-Za-z0-9_-]+)"
AGGREGATE_KEY_PATTERNS = {
    ROUTER: (
        r"topic|partitions|partition\.field|payload\.format|unknown\.fields|tombstone\.event\.types"
        rf"|schema\.versions|{VERSION_PATTERN}(\.id)?"
    ),
    PARSE_PAYLOAD: rf"schema\.versions|{VERSION_PATTERN}",
}
RULES = LintRules()


def _transforms_with_aggregates(lint_input: LintInput) -> list[Transform]:
    return [transform for transform in lint_input.transforms if transform.class_name in AGGREGATE_KEY_PATTERNS]


@RULES.rule(
    "route.keys",
    "every `aggregate.*` key is an option of a listed aggregate type, or of one of the type's listed schema versions",
    reason="Connect does not validate these keys, so the task fails when it starts if a key is wrong",
)
def check_unknown_aggregate_keys(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _transforms_with_aggregates(lint_input):
        known_keys = _known_keys(transform)
        for key in transform.settings:
            if key.startswith("aggregate.") and key not in known_keys:
                yield violation(f"{transform.prefix}{key} is unknown", "a known key", suggestion(key, known_keys))


def _known_keys(transform: Transform) -> set[str]:
    """Return the option keys of listed aggregate types. Keys of unlisted schema versions are excluded."""
    pattern = re.compile(AGGREGATE_KEY_PATTERNS[transform.class_name])
    labels = {name: [version.label for version in schema_versions(transform, name)] for name in transform.aggregates}
    return {
        key
        for key in transform.settings
        for name, option in _names_and_options(key)
        if name in labels
        and (match := pattern.fullmatch(option))
        and match["version"] in (None, "versions", *labels[name])
    }


def _names_and_options(key: str) -> Iterator[tuple[str, str]]:
    """Yield each pair of aggregate type and option into which a key can be split. Both can contain dots."""
    parts = key.split(".")
    if parts[0] == "aggregate":
        yield from ((".".join(parts[1:end]), ".".join(parts[end:])) for end in range(2, len(parts)))


@RULES.rule(
    "route.schemas",
    "every aggregate type with a json or Avro payload has schema versions, which are Avro records with a registry id",
    reason="payloads are encoded with schemas, and records contain the schema id; without schemas, the task fails",
)
def check_schema_version_keys(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _transforms_with_aggregates(lint_input):
        for name in transform.aggregates:
            if _payload_format(transform, name) in SCHEMALESS_FORMATS:
                continue
            prefix = f"{transform.prefix}aggregate.{name}.schema."
            versions = schema_versions(transform, name)
            if not versions:
                remedy = "list `aggregate.versions` in the template, as outbox-kit's templates do"
                yield violation(f"{prefix}versions is not set", "labels of schema versions", remedy)
            for version in versions:
                if version.text is None or not _is_record(version.text):
                    remedy = "set the schema to `version.text` in the template"
                    yield violation(f"{prefix}{version.label} is not an Avro record", "an Avro record", remedy)
                if transform.class_name == ROUTER and version.id != UNKNOWN and not version.id.isdecimal():
                    remedy = "set the id to `version.id` in the template"
                    yield violation(f"{prefix}{version.label}.id is not a number", "a registry id", remedy)


def _is_record(text: str) -> bool:
    definition = parse_json(text)
    return isinstance(definition, dict) and definition.get("type") == "record"


def _payload_format(transform: Transform, aggregate_type: str) -> str:
    return transform.settings.get(f"aggregate.{aggregate_type}.payload.format", "json")


@RULES.rule(
    "schema.unions",
    "a JSON value in a payload fits only one branch of each union, except for branches that do not change the value",
    reason="a JSON value does not name its branch, so the transform writes the first branch that accepts the value",
    severity=Severity.WARNING,
)
def check_unions(lint_input: LintInput) -> Iterator[Finding]:
    for transform in _transforms_with_aggregates(lint_input):
        for name in transform.aggregates:
            versions = schema_versions(transform, name) if _payload_format(transform, name) == "json" else []
            # Earlier schema versions cannot be changed.
            for location, first, second in _ambiguities(versions[0].text) if versions else ():
                yield violation(
                    f"aggregate {name}: a JSON value of {location} can fit both {first} and {second}",
                    "branches without a JSON value in common",
                    "remove one of the branches, or set `payload: confluent-avro`, whose values name their branch",
                )


def _ambiguities(schema: str | None) -> list[Ambiguity]:
    """Return the ambiguities in a schema, or an empty list for an invalid schema, which another rule reports."""
    try:
        return find_ambiguities(schema or "")
    except SCHEMA_ERRORS:
        return []


@RULES.rule(
    "schema.docs",
    "schemas in the connector config do not contain the attribute `doc`",
    reason="`doc` does not affect the encoding, and the size of a connector config is limited",
    severity=Severity.WARNING,
)
def check_schema_docs(lint_input: LintInput) -> Iterator[Finding]:
    for key, text in schema_texts(lint_input.config):
        if len(without_docs(text)) < len(compact(json.loads(text))):
            yield violation(f"{key} contains `doc`", "no `doc`", "use `version.text` in the template")
