"""Recovery from a lost slot or a replaced database: diagnosis, new slot, rows sent again, and proofs of delivery."""

from outbox_kit.recovery.diagnosis import Cause, CauseName, diagnose
from outbox_kit.recovery.recover import Recovery, recover

__all__ = ["Cause", "CauseName", "Recovery", "diagnose", "recover"]
