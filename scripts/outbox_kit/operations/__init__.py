"""Commands on a deployed pipeline: lifecycle, status, offsets, stuck aggregates.

Topics, slot and connector config are changed by `deployment`, states are written to the outbox by `backfill`, and rules
are evaluated by `verification`.
"""
