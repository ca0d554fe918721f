from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import psycopg.conninfo
import pytest

from outbox_kit.stack.errors import StackError
from outbox_kit.stack.state import StackState, kafka_cluster_id, read_state, write_state

PORTS = {"postgres": 25432, "kafka": 29092, "controller": 29093, "registry": 28081, "connect": 28083}


@pytest.fixture
def state(tmp_path: Path) -> StackState:
    return StackState(ports=PORTS, postgres_home=tmp_path)


def test_state_round_trip(state: StackState, tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", state)
    assert read_state(tmp_path / "state.json") == state


def test_only_the_owner_can_read_the_file(state: StackState, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.touch(mode=0o644)
    write_state(file, state)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_writing_leaves_no_temporary_files(state: StackState, tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", state)
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_returns_no_state_without_a_file(tmp_path: Path) -> None:
    assert read_state(tmp_path / "state.json") is None


def test_reports_a_damaged_file_without_quoting_it(state: StackState, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    content = state.model_dump(mode="json") | {"ports": "secret-of-the-file"}
    file.write_text(json.dumps(content))
    with pytest.raises(StackError, match=r"invalid: ports") as caught:
        read_state(file)
    assert "secret-of-the-file" not in str(caught.value)
    assert "--purge" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_reports_a_file_without_an_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(StackError, match="not a state file"):
        read_state(tmp_path / "state.json")


def test_each_stack_has_its_own_passwords(state: StackState, tmp_path: Path) -> None:
    second = StackState(ports=PORTS, postgres_home=tmp_path)
    assert len({*state.passwords(), *second.passwords()}) == 8


def test_repr_contains_no_password(state: StackState) -> None:
    assert not [secret for secret in state.passwords() if secret in repr(state)]


def test_returns_addresses(state: StackState) -> None:
    running = state.model_copy(update={"services": ("postgres", "kafka", "registry", "connect")})
    assert list(running.addresses()) == ["postgres", "target", "kafka", "connect", "registry"]
    assert running.kafka == "127.0.0.1:29092"
    assert running.connect == "http://127.0.0.1:28083"
    assert running.registry == "http://127.0.0.1:28081/apis/ccompat/v7"


@pytest.mark.parametrize(
    ("name", "user", "database"),
    [("postgres", "outbox_admin", "library"), ("target", "outbox_materializer", "warehouse")],
)
def test_dsns_are_valid_for_libpq(state: StackState, name: str, user: str, database: str) -> None:
    parsed = psycopg.conninfo.conninfo_to_dict(getattr(state, name))
    assert (parsed["user"], parsed["dbname"], parsed["port"]) == (user, database, "25432")
    assert parsed["password"] in state.passwords()


def test_only_started_services_have_addresses(state: StackState) -> None:
    assert state.addresses() == {}
    postgres_only = state.model_copy(update={"services": ("postgres",)})
    assert list(postgres_only.addresses()) == ["postgres", "target"]


def test_template_values_match_environment_files(state: StackState) -> None:
    values = state.template_values()
    assert values["postgres_port"] == 25432
    assert values["connector_password"] == state.connector_password
    assert set(values) >= {
        "postgres_host",
        "admin_user",
        "admin_password",
        "source_database",
        "target_database",
        "connector_user",
        "materializer_user",
        "materializer_password",
        "kafka",
        "connect",
        "registry",
    }


def test_keeps_ports_and_passwords_when_stopped(state: StackState) -> None:
    running = state.model_copy(update={"services": ("kafka",), "supervisor_pid": 7})
    assert running.stopped() == state


def test_cluster_id_does_not_start_with_a_dash() -> None:
    for _ in range(200):
        text = kafka_cluster_id()
        assert len(base64.urlsafe_b64decode(text + "==")) == 16
        assert not text.startswith("-")
