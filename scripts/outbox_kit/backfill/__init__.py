"""Write latest states to the outbox table, and replace a connector that another tool created (`adopt`)."""

from outbox_kit.backfill.adopt import AdoptResult, adopt
from outbox_kit.backfill.backfill_batches import BackfillOptions, BackfillResult, backfill
from outbox_kit.backfill.pending_backfills import acknowledge
from outbox_kit.backfill.republish import republish

__all__ = ["AdoptResult", "BackfillOptions", "BackfillResult", "acknowledge", "adopt", "backfill", "republish"]
