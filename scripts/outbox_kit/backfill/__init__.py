"""Commands that write the latest states of aggregates to the outbox, and `adopt`, which replaces a foreign connector.

They need a deployed pipeline; they do not change its desired state (deployment).
"""

from outbox_kit.backfill.adopt import Adopted, adopt
from outbox_kit.backfill.backfill_batches import Backfilled, Options, backfill
from outbox_kit.backfill.republish import republish

__all__ = ["Adopted", "Backfilled", "Options", "adopt", "backfill", "republish"]
