"""Encode payloads in each payload format (docs/contract.md). A record value of None is a tombstone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from outbox_events.contract import wire_format
from outbox_kit.encoding.avro.body import AvroBodyChecker
from outbox_kit.encoding.avro.encoder import AvroEncoder
from outbox_kit.encoding.json_values import is_null
from outbox_kit.encoding.row import InvalidRowError, PayloadError, quoted_name
from outbox_kit.pipeline import Aggregate, LockedSchema

Codec = TypeVar("Codec")
Payload = str | bytes | None
EncodePayload = Callable[[Payload, str | None], bytes | None]
"""Function that uses the row's schema version to encode a payload as a record value. Raises InvalidRowError."""
INVALID = "payload-invalid"


@dataclass(frozen=True)
class _Version(Generic[Codec]):
    label: str
    id: int
    codec: Codec


class _Versions(Generic[Codec]):
    """Schema versions of one aggregate type, with the latest version first."""

    def __init__(self, aggregate_type: str, versions: Sequence[_Version[Codec]]) -> None:
        self._type, self._versions = aggregate_type, list(versions)
        self._labels = ", ".join(version.label for version in versions)

    def candidates(self, label: str | None) -> list[_Version[Codec]]:
        """Return the version that the row names, or all versions if the row does not name a version."""
        if label is None:
            return self._versions
        named = [version for version in self._versions if version.label == label]
        if not named:
            raise InvalidRowError(
                "schema-version-unknown",
                f"schema version {quoted_name(label)} is not one of the versions of aggregate type {self._type} "
                f"({self._labels})",
            )
        return named

    def single(self, label: str | None) -> _Version[Codec]:
        candidates = self.candidates(label)
        if len(candidates) > 1:
            raise InvalidRowError(
                "schema-version-unknown",
                f"the row names no schema version, but aggregate type {self._type} has several versions "
                f"({self._labels})",
            )
        return candidates[0]

    def mismatch(self, label: str | None, error: PayloadError) -> InvalidRowError:
        problem = (
            f"fits no schema version of aggregate type {self._type} ({self._labels})"
            if label is None
            else f"does not fit the row's schema version of aggregate type {self._type}"
        )
        tried = self._versions[0].label if label is None else label
        return InvalidRowError(INVALID, f"the payload {problem}; the error with version {tried} is: {error.message}")


def payload_encoder(name: str, aggregate: Aggregate, schemas: Sequence[LockedSchema]) -> EncodePayload:
    """Return an aggregate type's payload encoder. It uses the schema versions and ids from the lock file."""
    if aggregate.payload == "json":
        ignore = aggregate.unknown_fields == "ignore"
        encoders = [_Version(str(e.version), e.id, AvroEncoder(e.text, ignore_unknown=ignore)) for e in schemas]
        return partial(_encode_json, _Versions(name, encoders))
    if aggregate.payload in ("avro", "confluent-avro"):
        checkers = _Versions(name, [_Version(str(e.version), e.id, AvroBodyChecker(e.text)) for e in schemas])
        encode = _encode_avro_body if aggregate.payload == "avro" else _encode_confluent
        return partial(_encode_bytes, partial(encode, checkers))
    return _encode_unchanged


def _encode_bytes(encode: Callable[[bytes, str | None], bytes], payload: Payload, label: str | None) -> bytes | None:
    if isinstance(payload, str):
        raise TypeError("an Avro payload is bytes")
    return None if payload is None else encode(payload, label)


def _encode_unchanged(payload: Payload, _label: str | None) -> bytes | None:
    if not isinstance(payload, str):
        return payload
    try:
        return payload.encode()
    except UnicodeEncodeError:
        raise InvalidRowError(INVALID, "the payload has an unpaired surrogate") from None


def _encode_json(versions: _Versions[AvroEncoder], payload: Payload, label: str | None) -> bytes | None:
    """Encode with the version that accepts the payload and skips the fewest fields. Newer versions are preferred.

    Older versions are tried because a backlog can contain rows that were written before a schema change.
    """
    if isinstance(payload, bytes):
        raise TypeError("a JSON payload is text")
    if payload is None or is_null(payload):
        return None
    first_error: PayloadError | None = None
    best: tuple[int, bytes] | None = None
    for version in versions.candidates(label):
        try:
            body, skipped = version.codec.encode(payload)
        except PayloadError as error:
            first_error = first_error or error
            continue
        if best is None or skipped < best[0]:
            best = (skipped, wire_format.PREFIX.pack(0, version.id) + body)
        if not skipped:
            break
    if best is None:
        raise versions.mismatch(label, first_error or PayloadError("no schema version")) from None
    return best[1]


def _encode_avro_body(versions: _Versions[AvroBodyChecker], payload: bytes, label: str | None) -> bytes:
    """Add the id of the row's schema version to an Avro body. With a wrong id, readers could decode wrong values."""
    version = versions.single(label)
    try:
        version.codec.check(payload)
    except PayloadError as error:
        raise versions.mismatch(label, error) from None
    return wire_format.PREFIX.pack(0, version.id) + payload


def _encode_confluent(versions: _Versions[AvroBodyChecker], payload: bytes, label: str | None) -> bytes:
    """Return a value in Confluent's wire format unchanged if it fits the schema that its id identifies."""
    schema_id = wire_format.schema_id(payload)
    if schema_id is None:
        problem = "is not in Confluent wire format (byte 0x00, schema id, Avro body)"
        raise InvalidRowError(INVALID, f"the payload {problem}")
    version = _version_of(versions.candidates(label), schema_id, label)
    try:
        version.codec.check(payload, wire_format.PREFIX.size)
    except PayloadError as error:
        problem = f"has the schema id of version {version.label} but does not fit the schema of this version"
        raise InvalidRowError(INVALID, f"the payload {problem}: {error.message}") from None
    return payload


def _version_of(candidates: Sequence[_Version[Codec]], schema_id: int, label: str | None) -> _Version[Codec]:
    for version in candidates:
        if version.id == schema_id:
            return version
    expected = " or ".join(f"{version.id} (version {version.label})" for version in candidates)
    whose = "a configured version" if label is None else "the row's schema version"
    problem = f"does not have the schema id of {whose}, expected {expected}"
    raise InvalidRowError(INVALID, f"the payload {problem}")
