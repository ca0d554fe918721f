"""Ids of topics, which differ from those of earlier topics of the same name."""

from __future__ import annotations

from confluent_kafka import Uuid

_NO_ID = str(Uuid(0, 0))


def known_id(topic_id: Uuid) -> str:
    """Return the id as text; empty for the zero id, which clusters without topic ids return."""
    text = str(topic_id)
    return "" if text == _NO_ID else text
