"""WAL positions of connector, slot and server."""

from __future__ import annotations

import pytest
from tests.unit.operations.samples import positions

from outbox_events.contract import lsn
from outbox_events.text import format_size
from outbox_kit.deployment.lag import Positions


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0/0"), (97500059720, "16/B374D848"), (2**32, "1/0"), (38320232, "0/248B868")]
)
def test_parses_both_notations(number: int, text: str) -> None:
    assert lsn.format_lsn(number) == text
    assert lsn.parse(text) == number
    assert lsn.describe(number) == f"{text} ({number})"
    assert lsn.as_json(number) == {"number": number, "text": text}


def test_returns_none_without_an_lsn() -> None:
    assert lsn.describe(None) == "none"
    assert lsn.as_json(None) is None


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (18_035_000, "17.2 MiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("actual", "fragment"),
    [
        (positions(confirmed=None), "the slot does not exist"),
        (positions(connector=None), "the connector has no offset"),
        (positions(connector=6000), "the connector is ahead of the server"),
        (positions(connector=900), "the slot is 100 bytes ahead of the connector"),
        (positions(connector=1000), "3.9 KiB of WAL (of all tables) are not yet read"),
        (positions(connector=1200), "200 bytes of WAL are in Kafka and not yet confirmed"),
        (positions(), "4.0 KiB of WAL are retained"),
    ],
)
def test_meaning(actual: Positions, fragment: str) -> None:
    assert any(message.startswith(fragment) for message in actual.explanations())


def test_document_lists_every_wal_position() -> None:
    document = positions(1200).to_dict()
    assert [document[key]["number"] for key in ("connector", "slot_confirmed_flush", "slot_restart", "server")] == [
        1200,
        1000,
        900,
        5000,
    ]
    assert document["offsets"][0]["partition"] == {"server": "library"}
