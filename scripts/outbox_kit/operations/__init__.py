"""Commands on a deployed pipeline: lifecycle, status, offsets, stuck aggregates.

They change no files and no deployed objects (deployment), write no business states (backfill) and judge nothing by
rules (verification).
"""
