"""Writes the newest state of aggregates into the outbox again, and takes over connectors that the kit did not make."""

from outbox_kit.backfill.adopt import Adopted, adopt
from outbox_kit.backfill.republish import republish
from outbox_kit.backfill.run import Backfilled, Options, backfill

__all__ = ["Adopted", "Backfilled", "Options", "adopt", "backfill", "republish"]
