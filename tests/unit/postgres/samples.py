"""States of the source database before and after the first apply."""

from __future__ import annotations

from dataclasses import replace

from outbox_kit.pipeline import LockedSource, Pipeline
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.postgres.role_limits import RoleLimits
from outbox_kit.postgres.state import COLUMN_TYPES, ActualDatabase
from outbox_kit.postgres.verify_queries import AdditionalState

PUBLICATION = {
    "name": "library_outbox",
    "comment": "outbox-kit: pipeline library, environment fixed, prefix library, slot library_outbox",
    "oid": 16500,
    "pubinsert": True,
    "pubupdate": False,
    "pubdelete": False,
    "pubtruncate": False,
    "pubviaroot": True,
    "puballtables": False,
    "tables": ["public.outbox_event"],
    "filtered": False,
}
SLOT = Slot(
    name="library_outbox",
    plugin="pgoutput",
    database="library",
    active=True,
    active_pid=7,
    wal_status="reserved",
    two_phase=False,
    confirmed_flush=0x16B374D848,
    restart_lsn=2**40,
    failover=True,
    invalidation_reason=None,
    reader="reader",
)
DEPLOYED = ActualDatabase(
    version=180004,
    database="library",
    wal_level="logical",
    system_identifier="7301",
    timeline=1,
    is_standby=False,
    wal_position=2**40,
    columns=dict(COLUMN_TYPES),
    publication=PUBLICATION,
    slot=SLOT,
    role={"can_login": True, "can_replicate": True, "can_read": True},
    table_oid=16400,
)
DETAILS = AdditionalState(
    settings={
        "max_replication_slots": 10,
        "max_wal_senders": 10,
        "max_prepared_transactions": 0,
        "wal_sender_timeout": 60_000,
        "max_slot_wal_keep_size": -1,
        "idle_replication_slot_timeout": 0,
    },
    sender_timeout_ms=60_000,
    usage={"slots": 1, "senders": 1, "prepared_ages_s": {}},
    nullable_columns=["payload", "headers"],
    check_constraints=["CHECK ((aggregate_id <> ''::text))"],
    published_columns=[*COLUMN_TYPES, "seq"],
    can_emit=True,
    moved_key_counts={},
    role_limits=RoleLimits(can_connect=True, can_use_schema=True, can_select=True),
)
EMPTY = replace(DEPLOYED, columns={}, publication=None, slot=None, role=None, table_oid=None)
LOCKED = LockedSource(
    system_identifier="7301",
    timeline=1,
    slot="library_outbox",
    slot_lsn="16/B374D848",
    publication_oid=16500,
    table_oid=16400,
)


def by_tenant(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with books partitioned by a column outside the contract."""
    book = pipeline.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    return pipeline.model_copy(update={"aggregates": {**pipeline.aggregates, "book": book}})
