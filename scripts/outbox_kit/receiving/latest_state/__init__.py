"""Latest state of each aggregate of a compacted topic, in the memory of a service. See docs/latest-state.md."""

from outbox_kit.receiving.latest_state.cache import LatestState
from outbox_kit.receiving.latest_state.status import StaleStateError, StateStatus

__all__ = ["LatestState", "StaleStateError", "StateStatus"]
