"""Commands that write the latest states of aggregates to the outbox, and `adopt`, which replaces a foreign connector.

All commands except `adopt` require a deployed pipeline, and do not change deployed objects (package deployment).
"""

from outbox_kit.backfill.adopt import AdoptResult, adopt
from outbox_kit.backfill.backfill_batches import BackfillOptions, BackfillResult, backfill
from outbox_kit.backfill.republish import republish

__all__ = ["AdoptResult", "BackfillOptions", "BackfillResult", "adopt", "backfill", "republish"]
