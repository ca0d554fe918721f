"""Errors whose end the receiver waits for, errors after which it retries, and errors that it recovers immediately."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest
import sqlalchemy
from confluent_kafka import KafkaError, KafkaException
from psycopg import sql

from outbox_events import InvalidRecordError, NotDeliveredError, Reaction, Retries, StaleStateError, default_reaction
from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_events.latest_state.cache import UnconfirmedStateError
from outbox_events.receiving.recoverers import describe

WAIT = ["08006", "25006", "53100", "53300", "57P01", "57P03", "58030"]
RETRY = ["22P02", "23505", "25P02", "42883", "53400", "54000"]
TRANSIENT = ["26000", "40001", "40P01", "42P05", "55P03", "57014"]
STOP = ["28P01", "3D000", "3F000", "42501", "42703", "42P01"]
STATES = {Reaction.WAIT: WAIT, Reaction.RETRY: RETRY, Reaction.TRANSIENT: TRANSIENT, Reaction.STOP: STOP}


class OperationalError(Exception):
    """An error with the attributes of psycopg2."""

    pgcode: str | None = None


class InterfaceError(Exception):
    """An error of pg8000."""


class AsyncpgError(Exception):
    """An error with the attributes of asyncpg."""

    sqlstate = ""


def psycopg2_error(state: str | None) -> Exception:
    error = OperationalError("failed")
    error.pgcode = state
    return error


def pg8000_error(state: str) -> Exception:
    return InterfaceError({"S": "ERROR", "C": state, "M": "failed"})


def asyncpg_error(state: str) -> Exception:
    error = AsyncpgError("failed")
    error.sqlstate = state
    return error


def wrapped(error: BaseException, *, is_lost: bool = False) -> Exception:
    return sqlalchemy.exc.DBAPIError("select 1", None, error, connection_invalidated=is_lost)


@pytest.mark.parametrize(
    ("state", "expected"), [(state, reaction) for reaction, states in STATES.items() for state in states]
)
def test_errors_of_postgresql(state: str, expected: Reaction) -> None:
    error = psycopg.errors.lookup(state)("failed")
    assert default_reaction(error) is expected
    for cause in (error, psycopg2_error(state), pg8000_error(state), asyncpg_error(state)):
        assert default_reaction(wrapped(cause)) is expected
        assert describe(wrapped(cause)) == f"{type(cause).__name__}: SQLSTATE {state}"


def test_a_lost_connection_is_an_outage_and_a_closed_cursor_is_not() -> None:
    assert default_reaction(psycopg.OperationalError("the connection is lost")) is Reaction.WAIT
    assert default_reaction(psycopg.InterfaceError("the cursor is closed")) is Reaction.RETRY
    assert default_reaction(wrapped(psycopg2_error(None))) is Reaction.WAIT
    refused = InterfaceError("cannot connect")
    assert default_reaction(wrapped(refused)) is Reaction.RETRY
    assert default_reaction(wrapped(refused, is_lost=True)) is Reaction.WAIT
    refused.__cause__ = ConnectionRefusedError()
    assert default_reaction(wrapped(refused)) is Reaction.WAIT


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TRANSPORT, Reaction.WAIT),
        (KafkaError._MSG_TIMED_OUT, Reaction.WAIT),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Reaction.WAIT),
        (KafkaError.MSG_SIZE_TOO_LARGE, Reaction.RETRY),
        (KafkaError.INVALID_RECORD, Reaction.RETRY),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reaction.RETRY),
    ],
)
def test_errors_of_kafka(code: int, expected: Reaction) -> None:
    error = KafkaException(KafkaError(code))
    assert default_reaction(error) is expected
    failure = NotDeliveredError("a record was not delivered")
    failure.__cause__ = error
    assert default_reaction(failure) is expected


def test_errors_of_the_kit() -> None:
    assert default_reaction(UnreachableError("the registry does not respond")) is Reaction.WAIT
    assert default_reaction(NotDeliveredError("not confirmed in time")) is Reaction.WAIT
    assert default_reaction(UnconfirmedStateError("the brokers do not respond")) is Reaction.WAIT
    assert default_reaction(StaleStateError("the newest record cannot be decoded")) is Reaction.RETRY
    assert default_reaction(InvalidRecordError("no id")) is Reaction.RECOVER
    assert default_reaction(ConfigurationError("no schema")) is Reaction.STOP
    assert default_reaction(ValueError("broken")) is Reaction.RETRY


def test_a_failed_connection_is_described_by_its_text() -> None:
    error = psycopg.OperationalError("connection failed: no password supplied\nand a second line")
    assert describe(error) == "OperationalError: connection failed: no password supplied"


def test_an_error_of_the_driver_is_described_by_the_line_of_the_handler() -> None:
    """psycopg raises errors without a SQLSTATE itself, with texts that may contain values."""
    with pytest.raises(psycopg.ProgrammingError) as caught:
        sql.SQL("{}").format(sql.Literal(object())).as_string()
    assert describe(caught.value).startswith("ProgrammingError: test_outages.py, line ")


@pytest.mark.parametrize(
    "numbers",
    [
        {"attempts": 0},
        {"first_delay_s": -1.0},
        {"factor": 0.5},
        {"max_delay_s": math.nan},
        {"jitter": 2.0},
    ],
)
def test_retries_without_an_attempt_or_a_delay_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Retries(**numbers)


def test_a_reaction_that_returns_nothing_is_an_error() -> None:
    def reaction(error: Exception) -> Reaction:
        if isinstance(error, KeyError):
            return Reaction.RECOVER
        return None  # type: ignore[return-value]

    retries = Retries(reaction=reaction)
    assert retries.reaction_to(KeyError()) is Reaction.RECOVER
    with pytest.raises(ConfigurationError, match="OperationalError"):
        retries.reaction_to(psycopg.OperationalError())
