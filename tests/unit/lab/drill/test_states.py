"""Versions in the values of delivered records."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from outbox_events.contract.wire_format import PREFIX
from outbox_lab.drill.observer import version_of
from outbox_lab.drill.project import SCHEMA

STATE = {"id": "account-1", "version": 7, "balance": -3}


def test_reads_versions_of_avro_and_json() -> None:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, STATE)
    assert version_of(PREFIX.pack(0, 5) + body.getvalue()) == 7
    assert version_of(json.dumps(STATE).encode()) == 7
    assert version_of(None) is None


def test_rejects_other_values() -> None:
    with pytest.raises(json.JSONDecodeError):
        version_of(b"x")
