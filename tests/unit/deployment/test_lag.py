"""WAL positions of the connector, slot and server, and the wait until a connector reads its slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.deployment.samples import NAME, Deployed, Serve, deployed_connector, service, stored
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import positions
from tests.unit.postgres.samples import SLOT

from outbox_events.contract import lsn
from outbox_events.errors import WaitTimeoutError
from outbox_events.text import format_size
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.lifecycle import FailedError
from outbox_kit.deployment import lag
from outbox_kit.deployment.lag import Positions
from outbox_kit.postgres.replication_slot import Slot


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


def test_server_is_read_after_the_offset(serve: Serve, deployed: Deployed, database: FakePostgres) -> None:
    """The connector advances while its slot is read. Offsets beyond the server's LSN indicate a restore."""
    connect = deployed_connector({}, lsn=100)
    deployment = deployed(connect=service(serve(connect)))
    earlier = connect_state.read_actual(deployment.connect, NAME)
    database.actual = replace(database.actual, slot=replace(SLOT, confirmed_flush=200), wal_position=250)

    def advance(_: object) -> bool:
        database.actual = replace(database.actual, wal_position=350)
        return False

    connect.offsets[NAME] = stored(300)
    connect.fails = advance
    actual = lag.read_positions(deployment, earlier)
    assert (actual.connector, actual.confirmed, actual.server) == (300, 200, 350)


UNCHANGED = replace(SLOT, active=True, confirmed_flush=5)
INACTIVE = replace(SLOT, active=False, confirmed_flush=5)
ADVANCED = replace(SLOT, active=True, confirmed_flush=9)
Wait = Callable[..., list[str]]


@pytest.fixture
def wait(serve: Serve, deployed: Deployed, database: FakePostgres, monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Return a function that waits for a slot with these states (the last is repeated) and returns the queries."""
    monkeypatch.setattr(lag, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(lag, "SLOT_TIMEOUT_S", 0.2)
    database.confirms = False

    def run(*slots: Slot, failed: bool = False) -> list[str]:
        database.polls = [*slots[:-1]]
        database.actual = replace(database.actual, slot=slots[-1])
        connect = deployed_connector({})
        connect.fails = lambda _: failed
        lag.wait_until_reading(deployed(connect=service(serve(connect))))
        return database.queries

    return run


def test_reads_the_slot_before_the_transaction(wait: Wait) -> None:
    assert wait(UNCHANGED, UNCHANGED, ADVANCED) == ["slot", "heartbeat", "slot", "slot"]


def test_slot_that_advanced_and_was_released_is_not_active(wait: Wait) -> None:
    """After its first transaction, Debezium reconnects, and the slot is not active in the meantime."""
    assert wait(UNCHANGED, replace(ADVANCED, active=False), ADVANCED).count("slot") == 3


def test_waits_for_a_large_transaction(wait: Wait) -> None:
    assert wait(UNCHANGED).count("slot") > 3


def test_reports_an_inactive_slot(wait: Wait) -> None:
    with pytest.raises(WaitTimeoutError, match="slot library_outbox to be active"):
        wait(INACTIVE)


def test_does_not_wait_for_a_connector_that_fails(wait: Wait) -> None:
    with pytest.raises(FailedError, match=r"FAILED: .*ERROR: publication does not exist"):
        wait(UNCHANGED, failed=True)
