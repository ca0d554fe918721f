"""Call the REST API of Kafka Connect, with one method per endpoint.

Unknown response fields are ignored, because newer workers add fields. rest.py handles retries and errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from outbox_kit.connect.rest import NotFoundError, RestClient, path_segment

CAUSED_BY = "Caused by: "
POSTGRES_EXCEPTION = "PSQLException"
MAX_CHARACTERS = 400
# Matches text that may quote a row: Jackson's source, Connect's structs and records, and rows that PostgreSQL rejects.
PAYLOAD_PATTERN = re.compile(
    r"\[Source: .*|(?<!\$)\{.*|Failing row contains.*|Key \(.*?\)=\(.*?\)|(?<=value: ).*|(?<=record: ).*", re.DOTALL
)
# Debezium's description of an offset contains braces, but no row. It can hide the reason that follows it.
OFFSET_PATTERN = re.compile(r"OffsetContext \[.*\]")
# ConfigTransformer.DEFAULT_PATTERN of Connect. `${name}` without a colon is not a placeholder, but a reference to a
# group in a replacement of RegexRouter.
PLACEHOLDER = re.compile(r"\$\{[^}]*?:[^}]*?\}")


@dataclass(frozen=True)
class ConnectorStatus:
    """State of a connector and its tasks, with the stack traces of failures."""

    connector_state: str
    task_states: tuple[str, ...]
    traces: tuple[str, ...]
    workers: tuple[str, ...] = ()
    """Addresses (host:port) of the connector's worker and of each task's worker, in this order."""

    @property
    def text(self) -> str:
        return f"connector {self.connector_state}, tasks: {', '.join(self.task_states) or 'no task yet'}"


@dataclass(frozen=True)
class LiveConnector:
    """Config and status of one connector in the Connect cluster; `status` is None if it has no status yet."""

    config: dict[str, str]
    status: ConnectorStatus | None


@dataclass(frozen=True)
class Validation:
    """Result of a config's validation: the errors of each key, and the keys that have an unresolved placeholder.

    Values are omitted, because the worker returns them with resolved secrets. Unresolved placeholders are detected in
    keys for the worker, transforms, converters and producer. They are not detected in masked values, or in keys for
    Debezium, because the worker does not return their values. Debezium's validation connects to the database, so a
    wrong address or login is reported as an error for a key.
    """

    errors: dict[str, list[str]]
    unresolved_keys: list[str]


class ConnectClient(RestClient):
    """Client of one Connect cluster. Raises UnreachableError and RejectedError (for HTTP 404, NotFoundError)."""

    def for_worker(self, url: str) -> ConnectClient:
        """Return a client for one worker, with the same credentials. Some responses describe only that worker."""
        return ConnectClient(self._service.model_copy(update={"url": url}), read_seconds=self._read_seconds)

    def bounded(self, seconds: float) -> ConnectClient:
        """Return a client of the same workers that limits each read to `seconds`."""
        return ConnectClient(self._service, self._addresses, read_seconds=seconds)

    def worker_info(self) -> dict[str, Any]:
        """Return the worker's version, commit and kafka_cluster_id."""
        return dict(self._call("GET", "/"))

    def plugin_versions(self) -> dict[str, str]:
        """Return a mapping from the class name of each plugin on the worker to its version, or to `unknown`."""
        plugins = self._call("GET", "/connector-plugins?connectorsOnly=false")
        return {entry["class"]: entry.get("version") or "unknown" for entry in plugins}

    def listed_connectors(self) -> dict[str, LiveConnector]:
        """Return a mapping from name to config and status. Connect omits a new connector that has no status yet."""
        response = self._call("GET", "/connectors?expand=info&expand=status")
        return {
            name: LiveConnector(dict(entry["info"]["config"]), _status(entry.get("status")))
            for name, entry in response.items()
            if entry.get("info")
        }

    def config(self, name: str) -> dict[str, str] | None:
        """Return a connector's config as stored, with its placeholders; None if the connector does not exist."""
        config = self._find(f"/connectors/{path_segment(name)}/config")
        return None if config is None else dict(config)

    def status(self, name: str) -> ConnectorStatus | None:
        """Return a connector's status; None if the connector does not exist or has no status yet."""
        return _status(self._find(f"/connectors/{path_segment(name)}/status"))

    def validate(self, name: str, config: dict[str, str]) -> Validation:
        """Validate a config. The resolved values in the response are discarded."""
        plugin = path_segment(config["connector.class"])
        body = self._call("PUT", f"/connector-plugins/{plugin}/config/validate", {"name": name, **config})
        values = [entry["value"] for entry in body["configs"] if entry.get("value")]
        return Validation(
            errors={value["name"]: value["errors"] for value in values if value["errors"]},
            unresolved_keys=sorted(value["name"] for value in values if PLACEHOLDER.search(str(value.get("value")))),
        )

    def create_stopped(self, name: str, config: dict[str, str]) -> None:
        """Create a connector in state STOPPED, so that its offsets can be written before its start."""
        self._call("POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"})

    def update_config(self, name: str, config: dict[str, str]) -> None:
        self._call("PUT", f"/connectors/{path_segment(name)}/config", config)

    def resume(self, name: str) -> None:
        """Resume a paused or stopped connector; a FAILED connector stays FAILED. Asynchronous."""
        self._call("PUT", f"/connectors/{path_segment(name)}/resume")

    def pause(self, name: str) -> None:
        """Pause the tasks without removing them. Asynchronous."""
        self._call("PUT", f"/connectors/{path_segment(name)}/pause")

    def stop(self, name: str) -> None:
        """Stop the connector and remove its tasks; config and offsets are retained. Asynchronous."""
        self._call("PUT", f"/connectors/{path_segment(name)}/stop")

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        failed_parameter = "&onlyFailed=true" if only_failed else ""
        self._call("POST", f"/connectors/{path_segment(name)}/restart?includeTasks=true{failed_parameter}")

    def delete(self, name: str) -> None:
        """Delete a connector. Connect keeps its offsets for the next connector of that name. Asynchronous."""
        self._call("DELETE", f"/connectors/{path_segment(name)}")

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return the offsets as dicts {partition, offset}; an empty list if no offset has been committed yet."""
        return list(self._call("GET", f"/connectors/{path_segment(name)}/offsets")["offsets"])

    def delete_offsets(self, name: str) -> None:
        """Delete all offsets of a connector that is STOPPED without tasks."""
        self._call("DELETE", f"/connectors/{path_segment(name)}/offsets")

    def patch_offsets(self, name: str, partition: dict[str, str], offset: dict[str, Any]) -> None:
        """Write the offset of one partition of a connector that is STOPPED without tasks."""
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        self._call("PATCH", f"/connectors/{path_segment(name)}/offsets", body)

    def loggers(self) -> dict[str, str]:
        return {name: str(entry["level"]) for name, entry in self._call("GET", "/admin/loggers").items()}

    def set_log_level(self, logger: str, level: str) -> None:
        """Set a logger's level on every worker of the cluster, until the worker restarts."""
        self._call("PUT", f"/admin/loggers/{path_segment(logger)}?scope=cluster", {"level": level})

    def plugin_config_keys(self, plugin: str) -> list[str] | None:
        """Return the config keys of a plugin class; None if the worker does not have the class."""
        entries = self._find(f"/connector-plugins/{path_segment(plugin)}/config")
        return None if entries is None else [entry["name"] for entry in entries]

    def _find(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the response to a read, or None for HTTP 404."""
        try:
            return self._call("GET", path)
        except NotFoundError:
            return None


def _status(body: dict[str, Any] | None) -> ConnectorStatus | None:
    if body is None:
        return None
    entries = [body["connector"], *body["tasks"]]
    return ConnectorStatus(
        connector_state=body["connector"]["state"],
        task_states=tuple(task["state"] for task in body["tasks"]),
        traces=tuple(entry["trace"] for entry in entries if entry.get("trace")),
        workers=tuple(entry.get("worker_id", "") for entry in entries),
    )


def root_cause(traces: tuple[str, ...], limit: int = MAX_CHARACTERS) -> str:
    """Return PostgreSQL's error and hint if the first trace contains such an error, else the innermost cause.

    Stack frames, text that may quote a row, and text after `limit` characters are removed.
    """
    if not traces:
        return "no trace"
    causes = list(_causes(traces[0]))
    cause = next((message for message in reversed(causes) if POSTGRES_EXCEPTION in message), causes[-1])
    if ": " not in cause and len(causes) > 1:
        cause = f"{causes[-2]} ({cause})"
    redacted_cause = PAYLOAD_PATTERN.sub("…", OFFSET_PATTERN.sub("OffsetContext […]", cause))
    return redacted_cause if len(redacted_cause) <= limit else f"{redacted_cause[:limit]}…"


def _causes(trace: str) -> Iterator[str]:
    """Yield the exception and its causes. Indented lines (causes of suppressed exceptions) are omitted."""
    lines = trace.splitlines() or [""]
    for number, line in enumerate(lines):
        if number == 0 or line.startswith(CAUSED_BY):
            # The message of an exception ends before the first stack frame.
            message_lines = takewhile(lambda text: not text.startswith(("\t", CAUSED_BY)), lines[number + 1 :])
            hint = next((text.strip() for text in message_lines if text.strip().startswith("Hint:")), "")
            yield " ".join(filter(None, (line.removeprefix(CAUSED_BY).strip(), hint)))
