"""Convert the values of events to dataclasses, msgspec.Struct classes, or models of pydantic."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

import msgspec
import msgspec.inspect

from outbox_events.errors import ConfigurationError
from outbox_events.receiving.event import Event, InvalidRecordError

Payload = TypeVar("Payload")
# Reasons of msgspec that describe types and fields. Other reasons contain values.
HARMLESS = re.compile(r"Expected |Object (missing|contains) ")


def require_convertible(kind: type[object]) -> None:
    """Raise ConfigurationError unless values can be converted to the class."""
    if hasattr(kind, "model_validate"):
        return
    try:
        is_unknown = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except NameError:
        return  # an annotation names a class that is defined later
    except TypeError as error:
        raise ConfigurationError(f"values cannot be converted to {kind.__qualname__}: {error}") from None
    if is_unknown:
        message = f"values cannot be converted to {kind.__qualname__}"
        raise ConfigurationError(message, "use a dataclass, a msgspec.Struct, or a model of pydantic")


def typed(event: Event, kind: type[Payload]) -> Event[Payload]:
    """Return the event with its value as an object of the class `kind`. A value of bytes must be JSON.

    Raises InvalidRecordError, whose message never contains the value, if the value does not match. A tombstone never
    matches.
    """
    if event.raw_value is None:
        raise InvalidRecordError(f"record {event.place} is a tombstone, not {kind.__name__}")
    decoded = event.value  # its errors are those of the service's decoder
    try:
        value = _convert(decoded, kind)
    except (ValueError, RecursionError) as error:  # of msgspec and of pydantic; its message can contain the value
        raise InvalidRecordError(f"value of record {event.place} is not {kind.__name__}{_reason(error)}") from None
    return replace(event, decode=lambda _: value)


def _convert(value: object, kind: type[Payload]) -> Payload:
    is_json = isinstance(value, bytes)
    validate = getattr(kind, "model_validate_json" if is_json else "model_validate", None)  # of pydantic
    if validate is not None:
        model: Payload = validate(value)
        return model
    return msgspec.json.decode(value, type=kind) if isinstance(value, bytes) else msgspec.convert(value, kind)


def _reason(error: Exception) -> str:
    reason, _, place = str(error).partition(" - at ")
    if not isinstance(error, msgspec.ValidationError):
        return ""
    return f": {error}" if HARMLESS.match(reason) else f" at {place}" if place else ""
