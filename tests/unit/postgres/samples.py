"""A database as it is after a first apply, and one before it."""

from __future__ import annotations

from dataclasses import replace

from outbox_kit.pipeline import LockedSource, Pipeline
from outbox_kit.postgres.state import COLUMN_TYPES, ActualDatabase

PUBLICATION = {
    "oid": 16500,
    "pubinsert": True,
    "pubupdate": False,
    "pubdelete": False,
    "pubtruncate": False,
    "pubviaroot": True,
    "tables": ["public.outbox_event"],
    "filtered": False,
}
SLOT = {
    "slot_name": "library_outbox",
    "plugin": "pgoutput",
    "database": "library",
    "active": True,
    "wal_status": "reserved",
    "confirmed_flush_lsn": "16/B374D848",
    "retained_bytes": 0,
}
DEPLOYED = ActualDatabase(
    version=180004,
    database="library",
    wal_level="logical",
    system_identifier="7301",
    timeline=1,
    standby=False,
    wal_position=2**40,
    columns=dict(COLUMN_TYPES),
    publication=PUBLICATION,
    slot=SLOT,
    role={"can_login": True, "can_replicate": True, "can_read": True},
)
EMPTY = replace(DEPLOYED, columns={}, publication=None, slot=None, role=None)
LOCKED = LockedSource(
    system_identifier="7301", timeline=1, slot="library_outbox", slot_lsn="16/B374D848", publication_oid=16500
)


def by_tenant(pipeline: Pipeline) -> Pipeline:
    """The pipeline with books partitioned by a column that the contract does not know."""
    book = pipeline.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    return pipeline.model_copy(update={"aggregates": {**pipeline.aggregates, "book": book}})
