"""Writes the newest state of aggregates into the outbox again, and takes over connectors that the kit did not make."""

from outbox_kit.backfill.adopt import Adopted, adopt
from outbox_kit.backfill.backfill_run import Backfilled, Options, backfill
from outbox_kit.backfill.republish import republish

__all__ = ["Adopted", "Backfilled", "Options", "adopt", "backfill", "republish"]
