"""`outbox verify`: is what was deployed still so, and does a row arrive?"""

from outbox_kit.verification.run import verify

__all__ = ["verify"]
