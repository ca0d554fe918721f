"""Recovery from a lost slot or a replaced database: cause, new slot, rows that are sent again, and what is proven."""

from outbox_kit.recovery.diagnosis import Cause, CauseName, diagnose
from outbox_kit.recovery.recover import Recovery, recover

__all__ = ["Cause", "CauseName", "Recovery", "diagnose", "recover"]
