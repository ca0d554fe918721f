"""Commands that write the latest states of aggregates to the outbox, and `adopt`, which replaces a foreign connector.

They need a deployed pipeline; they do not change its desired state (deployment).
"""

from outbox_kit.backfill.adopt import AdoptResult, adopt
from outbox_kit.backfill.backfill_batches import BackfillResult, Options, backfill
from outbox_kit.backfill.republish import republish

__all__ = ["AdoptResult", "BackfillResult", "Options", "adopt", "backfill", "republish"]
