"""Library for services that receive events and apply each of them once. See docs/receiving.md."""

from outbox_kit.receiving.latest_state import LatestState, StaleStateError, StateStatus
from outbox_kit.receiving.values import AvroValues, json_value, raw

__all__ = ["AvroValues", "LatestState", "StaleStateError", "StateStatus", "json_value", "raw"]
