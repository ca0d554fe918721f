"""Connections: errors for a database that does not respond, which do not contain the password."""

from __future__ import annotations

import traceback
from typing import Any

import psycopg
import pytest
from tests.unit.fake_postgres import FakeCursor, FakePostgres

from outbox_common.error_text import postgres_message
from outbox_events.errors import RefusedError, RejectedError, UnreachableError
from outbox_kit.pipeline import Environment, Login
from outbox_kit.postgres import client


@pytest.fixture
def unreachable(environment: Environment, free_port: int) -> Environment:
    """Return an environment whose database port refuses connections."""
    source = environment.source.model_copy(update={"host": "127.0.0.1", "port": free_port})
    return environment.model_copy(update={"source": source})


def test_error_names_an_unreachable_database(unreachable: Environment) -> None:
    with pytest.raises(UnreachableError) as caught, client.connected(unreachable.source):
        pass
    address = f"127.0.0.1:{unreachable.source.port}/library"
    assert caught.value.message.startswith(f"cannot connect to PostgreSQL at {address} as 'owner': ")
    assert "\n" not in caught.value.message
    assert "source.host" in caught.value.hint
    assert "owner-secret" not in "".join(traceback.format_exception(caught.value))


def test_uses_and_names_another_login(unreachable: Environment) -> None:
    login = Login.model_validate({"user": "checker", "password": "checker-secret"})
    with pytest.raises(UnreachableError) as caught, client.connected(unreachable.source, login):
        pass
    assert " as 'checker': " in caught.value.message
    assert "checker-secret" not in "".join(traceback.format_exception(caught.value))


class _Connection:
    """Connection without a server. The test raises the server's errors."""

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (
            psycopg.errors.InsufficientPrivilege("permission denied for table x\nLINE 1: ..."),
            RejectedError,
            "PostgreSQL at 127.0.0.1:1/library: permission denied for table x",
        ),
        (
            psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"),
            RejectedError,
            "PostgreSQL at 127.0.0.1:1/library: canceling statement due to lock timeout",
        ),
        (
            psycopg.errors.QueryCanceled("canceling statement due to statement timeout\nCONTEXT: ..."),
            RejectedError,
            "PostgreSQL at 127.0.0.1:1/library: canceling statement due to statement timeout",
        ),
        (psycopg.OperationalError(""), RejectedError, "PostgreSQL at 127.0.0.1:1/library: OperationalError"),
        (RefusedError("refused"), RefusedError, "refused"),
    ],
)
def test_reports_server_errors(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    expected: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr(psycopg, "connect", lambda **_: _Connection())
    source = environment.source.model_copy(update={"host": "127.0.0.1", "port": 1})
    with pytest.raises(expected) as caught, client.connected(source):
        raise raised
    assert str(caught.value) == message


def test_sets_lock_and_statement_timeouts(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a session waits for a table lock, all later writers wait, too."""
    connection_settings: dict[str, object] = {}

    def connect(**settings: object) -> _Connection:
        connection_settings.update(settings)
        return _Connection()

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(RejectedError) as caught, client.connected(environment.source):
        raise psycopg.errors.LockNotAvailable
    assert "lock_timeout=10s" in str(connection_settings["options"])
    assert "statement_timeout=30s" in str(connection_settings["options"])
    assert "pg_locks" in caught.value.hint


def test_quotes_the_table_because_to_regclass_converts_names_to_lower_case() -> None:
    parameters: list[object] = []

    class Recorder:
        def execute(self, _: str, values: object) -> FakeCursor:
            parameters.append(values)
            return FakeCursor([{"name": "id", "type": "uuid", "oid": 1}])

    connection: Any = Recorder()
    client.read_column_types(connection, "Shop.Event")
    client.read_table_oid(connection, "Shop.Event")
    client.read_role(connection, "reader", "Shop.Event")
    assert parameters[:2] == [('"Shop"."Event"',)] * 2
    assert parameters[2:] == [{"role": "reader", "table": '"Shop"."Event"', "schema": "Shop"}]


def test_a_rejected_value_is_reported_without_the_value() -> None:
    """Messages of SQLSTATE class 22 quote the value, which can be a secret or a payload."""
    error = psycopg.errors.InvalidTextRepresentation('invalid input syntax for type uuid: "planted"')
    assert postgres_message(error) == "a value was rejected, SQLSTATE 22P02"
    assert postgres_message(psycopg.errors.UndefinedTable("no table\nDETAIL: planted")) == "no table"


def test_the_time_limit_applies_to_each_statement(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """It applies, for example, to a query of `verify` that waits for a lock."""
    options: dict[str, object] = {}
    monkeypatch.setattr(psycopg, "connect", lambda **given: options.update(given) or FakePostgres().connect(user="u"))
    with client.connected(environment.source, seconds=5):
        assert options["connect_timeout"] == 5
        assert str(options["options"]).endswith("-c statement_timeout=5000")
