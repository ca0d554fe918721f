"""`backfill` and `republish`, which write latest states of aggregates to the outbox table, and `adopt`.

`adopt` replaces a connector that outbox-kit did not create. The other two commands require a deployed pipeline.
"""

from outbox_kit.backfill.adopt import AdoptResult, adopt
from outbox_kit.backfill.backfill_batches import BackfillOptions, BackfillResult, backfill
from outbox_kit.backfill.pending_backfills import acknowledge
from outbox_kit.backfill.republish import republish

__all__ = ["AdoptResult", "BackfillOptions", "BackfillResult", "acknowledge", "adopt", "backfill", "republish"]
