"""Recover from a lost slot or a replaced database: diagnose, create a new slot, resend rows, and prove delivery."""

from outbox_kit.recovery.diagnosis import Cause, CauseName, diagnose
from outbox_kit.recovery.recover import Recovery, recover, unfinished_steps

__all__ = ["Cause", "CauseName", "Recovery", "diagnose", "recover", "unfinished_steps"]
