"""Operate a deployed pipeline: lifecycle, status, offsets, stuck aggregates.

The package `deployment` changes topics, slot and connector config, `backfill` writes states to the outbox, and
`verification` evaluates rules.
"""
