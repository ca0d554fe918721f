"""Dangers of changes of the source database: rows that never reach the topics."""

from __future__ import annotations

from dataclasses import replace

from outbox_kit.errors import RESEND_HINT
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.pipeline import Lock, Pipeline
from outbox_kit.results.changes import Change
from outbox_kit.results.repair_commands import resend_steps


def add_dangers(changes: list[Change], pipeline: Pipeline, lock: Lock | None) -> list[Change]:
    """Return the changes of the source database with their dangers."""
    return [replace(change, danger=_danger(change, pipeline, lock)) for change in changes] if lock else changes


def _danger(change: Change, pipeline: Pipeline, lock: Lock) -> str:
    # Only a recovery recreates a slot of the lock file: otherwise refuse_unsafe() raises if the slot is missing.
    if lock.unfinished == "recover":
        return _recreation_danger(change)
    if change.kind == "table" and change.action == "update":
        danger = (
            "rows that were written before the publication contained the new table never reach Kafka; only a "
            "publication of all tables has always contained it"
        )
        return f"{danger}; afterwards {resend_steps(pipeline)}"
    retained_types = types_with_pending_backfill(lock.topics)
    if change.kind == "slot" and lock.source is None and retained_types:
        danger = "rows that were committed after `outbox destroy` never reach the retained topics"
        return f"{danger}; afterwards {resend_steps(pipeline, retained_types)}"
    return ""


def _recreation_danger(change: Change) -> str:
    if change.kind not in ("slot", "publication"):
        return ""
    danger = (
        f"a new {change.kind} starts at the current LSN: rows after the connector's last offset are not sent to Kafka"
    )
    return f"{danger}; afterwards run {RESEND_HINT}"
