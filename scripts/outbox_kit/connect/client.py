"""Kafka Connect's REST API, one method per endpoint, no policy.

Of every answer only the fields that are known are read: workers add new ones. How requests are retried and errors told
apart is in rest.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from outbox_kit.connect.rest import (
    AlreadyExistsError,
    MaybeDoneError,
    NotFoundError,
    RebalanceError,
    RestClient,
    is_rebalance,
    segment,
)

__all__ = [
    "AlreadyExistsError",
    "ConnectClient",
    "ConnectorStatus",
    "LiveConnector",
    "MaybeDoneError",
    "NotFoundError",
    "RebalanceError",
    "Validation",
    "is_rebalance",
]

# What Connect itself takes for a placeholder (ConfigTransformer.DEFAULT_PATTERN): `${name}` without a colon is none,
# and stands for a group in RegexRouter's replacement.
PLACEHOLDER = re.compile(r"\$\{[^}]*?:[^}]*?\}")


@dataclass(frozen=True)
class ConnectorStatus:
    """State of a connector and of its tasks; `traces` holds the failures' stack traces."""

    connector: str
    tasks: tuple[str, ...]
    traces: tuple[str, ...]
    workers: tuple[str, ...] = ()
    """host:port of the connector's worker, then of each task's."""

    @property
    def words(self) -> str:
        tasks = ", ".join(self.tasks) or "no task yet"
        return f"connector {self.connector}, tasks: {tasks}"


@dataclass(frozen=True)
class LiveConnector:
    """One connector of the cluster; a worker leaves the status out where it has none yet."""

    config: dict[str, str]
    status: ConnectorStatus | None


@dataclass(frozen=True)
class Validation:
    """What the worker says about a config: errors by key, and the keys whose placeholder it could not resolve.

    Never a value: the worker answers with resolved ones, for its own keys and those of transforms, converters and
    producer. It masks passwords, and Debezium answers without values for its own keys: what is unresolved there is not
    seen here. Address and login show as errors, because Debezium's validation logs in.
    """

    errors: dict[str, list[str]]
    unresolved: list[str]


class ConnectClient(RestClient):
    """One Connect cluster. Raises UnreachableError, RejectedError (NotFoundError for 404, see rest.py)."""

    def at(self, url: str) -> ConnectClient:
        """The same cluster and credentials through this worker alone; some answers are of one worker only."""
        return ConnectClient(self._service.model_copy(update={"url": url}))

    def root(self) -> dict[str, Any]:
        """version, commit, kafka_cluster_id."""
        return dict(self._call("GET", "/"))

    def plugins(self) -> list[str]:
        """Class names of every plugin (connectors, transforms, converters) of the worker that answers."""
        return [entry["class"] for entry in self._plugins()]

    def plugin_versions(self) -> dict[str, str]:
        """Version of every plugin of the worker that answers, by class name; `unknown` where it has none."""
        return {entry["class"]: entry.get("version") or "unknown" for entry in self._plugins()}

    def all_connectors(self) -> dict[str, LiveConnector]:
        """Every connector of the cluster in one call, but those that were made so recently that they have no status."""
        found = self._call("GET", "/connectors?expand=info&expand=status")
        return {
            name: LiveConnector(dict(entry["info"]["config"]), _status(entry.get("status")))
            for name, entry in found.items()
            if entry.get("info")
        }

    def config(self, name: str) -> dict[str, str] | None:
        """Config of a connector with placeholders as written, None where there is none."""
        try:
            return dict(self._call("GET", f"/connectors/{segment(name)}/config"))
        except NotFoundError:
            return None

    def status(self, name: str) -> ConnectorStatus | None:
        """None right after creation: workers read the status topic a moment later."""
        try:
            return _status(self._call("GET", f"/connectors/{segment(name)}/status"))
        except NotFoundError:
            return None

    def validate(self, name: str, config: dict[str, str]) -> Validation:
        """What the worker says about `config`. Its answer also holds resolved values; they are dropped at once."""
        plugin = segment(config["connector.class"])
        body = self._call("PUT", f"/connector-plugins/{plugin}/config/validate", {"name": name, **config})
        values = [entry["value"] for entry in body["configs"] if entry.get("value")]
        return Validation(
            errors={value["name"]: value["errors"] for value in values if value["errors"]},
            unresolved=sorted(value["name"] for value in values if PLACEHOLDER.search(str(value.get("value")))),
        )

    def create_stopped(self, name: str, config: dict[str, str]) -> None:
        """Create a connector that does not run yet, so that its offsets can be seeded."""
        self._call("POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"})

    def update(self, name: str, config: dict[str, str]) -> None:
        self._call("PUT", f"/connectors/{segment(name)}/config", config)

    def resume(self, name: str) -> None:
        """Let a paused or stopped connector run; does nothing to one that FAILED. Asynchronous."""
        self._call("PUT", f"/connectors/{segment(name)}/resume")

    def pause(self, name: str) -> None:
        """Halt the tasks but keep them. Asynchronous."""
        self._call("PUT", f"/connectors/{segment(name)}/pause")

    def stop(self, name: str) -> None:
        """Stop the connector and give up its tasks; its config and offsets stay. Asynchronous."""
        self._call("PUT", f"/connectors/{segment(name)}/stop")

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        """Restart the connector and its tasks, or those of them that FAILED."""
        failed = "&onlyFailed=true" if only_failed else ""
        self._call("POST", f"/connectors/{segment(name)}/restart?includeTasks=true{failed}")

    def delete(self, name: str) -> None:
        """Connect keeps its offsets for the next one of that name, and may list it for a moment."""
        self._call("DELETE", f"/connectors/{segment(name)}")

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """[{partition, offset}], empty before the first commit."""
        return list(self._call("GET", f"/connectors/{segment(name)}/offsets")["offsets"])

    def delete_offsets(self, name: str) -> None:
        """Only a STOPPED connector without tasks accepts this."""
        self._call("DELETE", f"/connectors/{segment(name)}/offsets")

    def patch_offsets(self, name: str, partition: dict[str, str], offset: dict[str, Any]) -> None:
        """Only a STOPPED connector without tasks accepts this."""
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        self._call("PATCH", f"/connectors/{segment(name)}/offsets", body)

    def loggers(self) -> dict[str, str]:
        """Level by logger, of the worker that answers."""
        found = self._call("GET", "/admin/loggers")
        return {name: str(entry["level"]) for name, entry in found.items()}

    def set_log_level(self, logger: str, level: str) -> None:
        """Set a logger's level on every worker of the cluster, until each one's restart."""
        self._call("PUT", f"/admin/loggers/{segment(logger)}?scope=cluster", {"level": level})

    def plugin_config_keys(self, plugin: str) -> list[str] | None:
        """Keys that a plugin class of the answering worker defines; None where it has no such class."""
        try:
            return [entry["name"] for entry in self._call("GET", f"/connector-plugins/{segment(plugin)}/config")]
        except NotFoundError:
            return None

    def _plugins(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/connector-plugins?connectorsOnly=false"))


def _status(body: dict[str, Any] | None) -> ConnectorStatus | None:
    if body is None:
        return None
    everything = [body["connector"], *body["tasks"]]
    return ConnectorStatus(
        connector=body["connector"]["state"],
        tasks=tuple(task["state"] for task in body["tasks"]),
        traces=tuple(part["trace"] for part in everything if part.get("trace")),
        workers=tuple(part.get("worker_id", "") for part in everything),
    )
