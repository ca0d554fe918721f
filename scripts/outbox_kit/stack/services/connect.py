"""Run the Connect worker in distributed mode."""

from __future__ import annotations

from pathlib import Path

from outbox_events.waiting import Observation
from outbox_kit.stack import health_checks
from outbox_kit.stack.errors import StackError, setup_hint
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.jvm import kafka_command, write_properties
from outbox_kit.stack.services.service import Context, Options, Program, Service
from outbox_kit.stack.state import StackState

PASSWORD_VARIABLE = "OUTBOX_CONNECTOR_PASSWORD"  # noqa: S105 - a name
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
PROVIDER_PACKAGE = "org.apache.kafka.common.config.provider"


def worker_settings(
    state: StackState, folders: tuple[Path, ...], discovery: str, secrets_folder: Path
) -> dict[str, str | int | bool]:
    """Return the settings of connect.properties."""
    return {
        "bootstrap.servers": state.kafka,
        "listeners": f"http://{HOST}:{state.ports['connect']}",
        "rest.advertised.host.name": HOST,
        "rest.advertised.port": state.ports["connect"],
        "plugin.path": ",".join(map(str, folders)),
        "plugin.discovery": discovery,
        **common_settings(),
        "config.providers": "env,file",
        "config.providers.file.class": f"{PROVIDER_PACKAGE}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(secrets_folder),
    }


def common_settings() -> dict[str, str | int | bool]:
    """Return the settings that the embedded worker and workers in containers have in common."""
    return {
        "group.id": "outbox-connect",
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        # The internal topics are sized for one broker.
        "config.storage.topic": "outbox-connect-configs",
        "config.storage.replication.factor": 1,
        "offset.storage.topic": "outbox-connect-offsets",
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 1,
        "status.storage.topic": "outbox-connect-status",
        "status.storage.replication.factor": 1,
        "status.storage.partitions": 1,
        # Without this setting, Connect rejects a connector with exactly.once.support=required.
        "exactly.once.source.support": "enabled",
        "connector.client.config.override.policy": "All",
        # The group removes a killed worker after 6 s, the minimum that a broker allows by default. It reassigns the
        # worker's tasks 1 s later; the default delay is five minutes.
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 2000,
        "scheduled.rebalance.max.delay.ms": 1000,
        "offset.flush.interval.ms": 5000,
        "config.providers": "env",
        "config.providers.env.class": f"{PROVIDER_PACKAGE}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "OUTBOX_.*",
    }


def plugin_folders(layout: Layout, options: Options) -> tuple[Path, ...]:
    """Return the directories of plugin.path. Raises StackError if a directory is missing or empty.

    Connect only logs a missing directory, and later rejects connectors that need plugins from that directory.
    """
    folders = (
        layout.runtime / "connect-plugins",
        layout.transforms,
        *(layout.root / folder for folder in options.plugin_folders),
    )
    for folder in folders:
        if not folder.is_dir() or not any(folder.iterdir()):
            reinstall = "install the wheel of a release, which contains the transforms"
            hint = setup_hint(reinstall if folder == layout.transforms else "")
            raise StackError(f"no Connect plugins in {folder}", hint)
    return folders


class Connect(Service):
    """The Connect worker as a service of the stack."""

    name = "connect"
    component = "connect-plugins"
    requires = ("kafka",)
    start_seconds = 120.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings_file = context.layout.configuration / "connect.properties"

    def prepare(self) -> None:
        layout, options = self.layout, self.context.options
        folders = plugin_folders(layout, options)
        settings = worker_settings(self.state, folders, options.plugin_discovery, layout.secrets)
        write_properties(self.settings_file, settings)

    def program(self) -> Program:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = kafka_command(self.context, self.name, main, str(self.settings_file), heap="768m")
        return Program(command, {PASSWORD_VARIABLE: self.state.connector_password}, stop_seconds=30)

    def check(self) -> Observation[bool]:
        return health_checks.check_connect(self.state.connect, self.context.options.required_plugins)
