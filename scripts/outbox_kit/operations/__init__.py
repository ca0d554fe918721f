"""Commands on a deployed pipeline: lifecycle, status, offsets, stuck aggregates.

They change neither files nor deployed objects (package deployment), write no events (backfill) and evaluate no rules
(verification).
"""
