"""Write the drill's project in build/drill, which has a pipeline file for each cell, and run its separate stack."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import yaml

from outbox_events.errors import ConfigurationError
from outbox_kit.results import Reporter
from outbox_kit.stack import Options, Stack, StackState
from outbox_kit.stack.processes import terminate
from outbox_lab.drill.accounts import AGGREGATE

ENVIRONMENT = "drill"
STANDBY = "standby"
"""Name of the standby process, by which the next drill finds this process if the drill is killed."""
PARTITIONS = 4
STANDBY_STOP_S = 10
# wal_sender_timeout is shorter than the pause of Kafka, so that the pause ends the replication connection.
SERVER_SETTINGS = {"wal_sender_timeout": "8s", "deadlock_timeout": "1s"}
# The topics are compacted, as in the pipelines of users, but compaction must not remove any record, because the drill
# counts the records.
TOPIC_SETTINGS = {"min.compaction.lag.ms": str(7 * 24 * 3600 * 1000)}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Account",
    "namespace": "io.outboxkit.drill",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "version", "type": "long"},
        {"name": "balance", "type": "long"},
    ],
}


@dataclass(frozen=True)
class DrillProject:
    """The drill's own project, which is in `project_folder`. `make setup` must have been run in `project_folder`."""

    project_folder: Path
    stack_options: Options = field(default_factory=Options)
    commit: str = ""
    """Commit of the checkout, or an empty text outside a checkout."""
    stack_name: str = ""
    """Name that distinguishes stacks which run at the same time, or an empty text for the only stack."""

    @property
    def _build(self) -> Path:
        return self.project_folder / "build" / "drill"

    @property
    def folder(self) -> Path:
        """Folder of the drill's own project."""
        return self._build / self.stack_name

    @property
    def logs(self) -> Path:
        """Folder for the logs of the processes that are not services of the stack."""
        return self.folder / "logs"

    @property
    def results(self) -> Path:
        """Folder of the results of all stacks. A purge of a stack does not delete this folder."""
        return self._build / "results"

    def write_environment(self, proxy_port: int) -> None:
        """Write the templates, the schema and the environment file, in which the connector's port is `proxy_port`."""
        connectors = self.folder / "connectors"
        templates = self.project_folder / "connectors" / "templates"
        if templates.is_dir():  # otherwise the built-in templates are used
            shutil.copytree(templates, connectors / "templates", dirs_exist_ok=True)
        for name in ("environments", "../schemas"):
            (connectors / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "schemas" / f"{AGGREGATE}.avsc").write_text(json.dumps(SCHEMA))
        local = yaml.safe_load(self._local_environment.read_text())
        local["name"] = ENVIRONMENT
        local["source"]["connector"] |= {"host": "127.0.0.1", "port": proxy_port}
        local["connector"]["exactly_once"] = "requested"  # the worker decides; see ConnectMode
        (connectors / "environments" / f"{ENVIRONMENT}.yaml").write_text(yaml.safe_dump(local))

    def write_pipeline(self, name: str, **changes: object) -> Path:
        """Write the pipeline file of one cell, with separate topics, slot and table. Return the path of this file."""
        pipeline: dict[str, object] = {
            "name": name,
            "prefix": name,
            "source": {"table": f"public.{name}_event", "publication": f"{name}_p", "slot": f"{name}_s"},
            "aggregates": {
                AGGREGATE: {"schema": f"schemas/{AGGREGATE}.avsc", "partitions": PARTITIONS, "topic": TOPIC_SETTINGS}
            },
            "connector": {"name": name, "template": "outbox-postgres"},
            "materializations": [{"aggregate": AGGREGATE, "target": "warehouse", "table": name}],
            **changes,
        }
        path = self.folder / "connectors" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(pipeline))
        return path

    @property
    def _local_environment(self) -> Path:
        """Environment file of the embedded stack, from which the drill's environment file is derived."""
        return self.project_folder / "connectors" / "environments" / "local.yaml"

    @contextmanager
    def running_stack(self, progress: Reporter) -> Iterator[tuple[Stack, StackState]]:
        """Start the drill's stack without the data of an earlier run. At the end, stop the stack and delete its data.

        Raises ConfigurationError if the environment file of the embedded stack is missing. Raises StackError if a
        folder is missing or the stack does not start.
        """
        if not self._local_environment.is_file():
            hint = "copy this file from the outbox-kit repository, or run the drill there"
            raise ConfigurationError(f"{self._local_environment} does not exist", hint)
        stack = Stack(self.folder, self.stack_options)
        terminate(stack.layout, (STANDBY,), seconds=STANDBY_STOP_S)
        stack.down(progress, purge=True)
        state = stack.up(progress)
        try:
            _set_server_settings(state)
            yield stack, state
        finally:
            stack.down(progress, purge=True)


def _set_server_settings(state: StackState) -> None:
    with psycopg.connect(state.postgres, connect_timeout=10, autocommit=True) as connection:
        for name, value in SERVER_SETTINGS.items():
            connection.execute(f"alter system set {name} = '{value}'")
        connection.execute("select pg_reload_conf()")
