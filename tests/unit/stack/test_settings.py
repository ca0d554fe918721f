"""Settings of the services that the deployment requires, and their file formats."""

from __future__ import annotations

import configparser
import shlex
import stat
from pathlib import Path

import pytest

from outbox_kit.stack.errors import StackError, setup_hint
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.services.connect import plugin_folders, worker_settings
from outbox_kit.stack.services.jvm import jvm_command, kafka_class_path, render_properties, write_properties
from outbox_kit.stack.services.kafka import broker_settings
from outbox_kit.stack.services.postgres import PG_HBA, render_settings, server_settings
from outbox_kit.stack.services.registry import registry_environment
from outbox_kit.stack.services.service import Context, Options, Program
from outbox_kit.stack.state import StackState
from outbox_kit.stack.supervisor import render_configuration
from outbox_kit.stack.tools import run_tool

PORTS = {"postgres": 25432, "kafka": 29092, "controller": 29093, "registry": 28081, "connect": 28083}


@pytest.fixture
def state(tmp_path: Path) -> StackState:
    return StackState(ports=PORTS, postgres_home=tmp_path)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def test_jvm_options_precede_the_main_class(state: StackState, layout: Layout) -> None:
    context = Context(layout, state, Options(jvm_options="-Xint"), java=Path("java"))
    assert jvm_command(context, "kafka", heap="1g", main=("Main", "argument"))[-3:] == ("-Xint", "Main", "argument")


def test_disables_automatic_topic_creation() -> None:
    assert broker_settings(PORTS, Path("/data"))["auto.create.topics.enable"] is False


def test_broker_listens_on_loopback_only() -> None:
    settings = broker_settings(PORTS, Path("/data"))
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:29092"


def test_internal_topics_need_one_broker() -> None:
    settings = broker_settings(PORTS, Path("/data"))
    replicas = {name: value for name, value in settings.items() if name.endswith("replication.factor")}
    assert len(replicas) == 4
    assert set(replicas.values()) == {1}


def worker(state: StackState) -> dict[str, str | int | bool]:
    return worker_settings(state, (Path("/a"), Path("/b")), "service_load", Path("/secrets"))


def test_worker_allows_the_overrides_of_the_connector(state: StackState) -> None:
    settings = worker(state)
    assert settings["exactly.once.source.support"] == "enabled"
    assert settings["connector.client.config.override.policy"] == "All"
    assert settings["plugin.path"] == "/a,/b"


def test_worker_can_read_only_its_secrets_folder(state: StackState) -> None:
    settings = worker(state)
    assert settings["config.providers.env.param.allowlist.pattern"] == "OUTBOX_.*"
    assert settings["config.providers.file.param.allowed.paths"] == "/secrets"
    assert state.connector_password not in render_properties(settings)


def test_detects_a_killed_worker_quickly(state: StackState) -> None:
    settings = worker(state)
    assert int(settings["session.timeout.ms"]) + int(settings["scheduled.rebalance.max.delay.ms"]) <= 8000


def test_reports_a_missing_plugin_folder(layout: Layout) -> None:
    folder = layout.root / "plugins"
    folder.mkdir()
    (layout.root / "connect-plugins" / "debezium").mkdir(parents=True)
    layout.runtime = layout.transforms = layout.root
    with pytest.raises(StackError, match=f"plugins in {folder}") as caught:
        plugin_folders(layout, Options(plugin_folders=(folder,)))
    assert caught.value.hint == "run `make setup`"


def test_hints_without_a_checkout_do_not_name_make(tmp_path: Path) -> None:
    assert setup_hint("install it", tmp_path) == "install it"
    assert "`outbox stack up`" in setup_hint(checkout=tmp_path)
    assert "make" not in setup_hint(checkout=tmp_path)


def test_reports_an_incomplete_class_path(layout: Layout) -> None:
    """Without log4j-core, the worker accepts a new log level but does not apply it."""
    layout.runtime = layout.root / "runtime"
    libraries = layout.runtime / "kafka" / "libs"
    libraries.mkdir(parents=True)
    for jar in ("kafka-server-4.3.1.jar", "connect-runtime-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar"):
        (libraries / jar).touch()
    with pytest.raises(StackError, match="does not contain log4j-core"):
        kafka_class_path(layout)
    (libraries / "log4j-core-2.25.4.jar").touch()
    assert kafka_class_path(layout) == f"{libraries}/*"


def test_registry_uses_postgresql_with_few_connections(state: StackState) -> None:
    environment = registry_environment(state)
    assert environment["APICURIO_DATASOURCE_URL"] == "jdbc:postgresql://127.0.0.1:25432/registry"
    assert environment["APICURIO_STORAGE_KIND"] == "sql"
    assert int(environment["APICURIO_DATASOURCE_JDBC_MAX_SIZE"]) <= 10


def test_postgresql_has_logical_decoding_prepared_transactions_and_durability() -> None:
    settings = server_settings(25432, "name")
    assert settings["wal_level"] == "logical"
    assert settings["max_prepared_transactions"] == "64"
    assert settings["listen_addresses"] == "'127.0.0.1'"
    assert not {"fsync", "synchronous_commit", "full_page_writes"} & set(settings)
    assert "port = 25432\n" in render_settings(settings)


def test_every_postgresql_connection_needs_a_password() -> None:
    assert {line.split()[-1] for line in PG_HBA.splitlines()} == {"scram-sha-256"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (5, "5"), ("a b", "a b"), ("C:\\x", "C:\\\\x"), (" lead", "\\ lead"), ("a\nb", "a\\nb")],
)
def test_escapes_properties_for_java(value: str | int | bool, text: str) -> None:
    assert render_properties({"key": value}) == f"key={text}\n"


def test_properties_files_are_private(tmp_path: Path) -> None:
    file = tmp_path / "some.properties"
    file.touch(mode=0o644)
    write_properties(file, {"a": 1})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def parse(text: str) -> configparser.ConfigParser:
    """Read supervisord.conf with the comment characters that Supervisor sets."""
    parser = configparser.ConfigParser(inline_comment_prefixes=(";", "#"), interpolation=None)
    parser.read_string(text)
    return parser


def test_passes_a_command_to_supervisor_unchanged(layout: Layout) -> None:
    command = ("/my jdk/java", "-Dx=100%", "Main")
    text = render_configuration(layout, {"kafka": Program(command, {"SECRET": "ab%c"}, user="nobody")})
    section = parse(text)["program:kafka"]
    assert shlex.split(section["command"] % {}) == list(command)
    assert section["environment"] % {} == 'SECRET="ab%c"'
    assert section["user"] == "nobody"
    assert section["autostart"] == "false"
    assert section["autorestart"] == "true"


def test_sets_a_user_only_for_programs_of_another_user(layout: Layout) -> None:
    assert "user" not in parse(render_configuration(layout, {"kafka": Program(("x",))}))["program:kafka"]


def test_processes_do_not_inherit_the_environment_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They inherit neither settings of other programs nor secrets of other environments."""
    for name in ("CLASSPATH", "PGOPTIONS", "QUARKUS_HTTP_PORT", "OUTBOX_ADMIN_PASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "planted")
    run_tool("env", ("sh", "-c", "env > variables"), seconds=10, folder=tmp_path)
    text = (tmp_path / "variables").read_text()
    assert "PATH=" in text
    assert "planted" not in text
