"""A Kafka Connect worker in memory, which stores connectors, states and offsets like a real worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.unit.connect_samples import TRACE
from tests.unit.support import Request

Answer = tuple[int, object]
Offsets = list[dict[str, Any]]


def error(status: int, message: str) -> Answer:
    """Return an error in Connect's format."""
    return status, {"error_code": status, "message": message}


@dataclass(frozen=True)
class Fault:
    """Response to one request, which replaces the worker's response. `done` if the worker executes the request."""

    answer: Answer
    done: bool = False


@dataclass
class FakeConnect:
    """Responds to requests like a worker.

    `configs`, `states` and `offsets` are by connector name. A connector in `failed` has a FAILED task until it is
    restarted, stopped or updated. A config that `fails` accepts always has this effect. Each of `polls` answers one
    status request with the states of the connector and its tasks before the worker acted, or () for no status.
    `faults` are by method and resource (`PUT config`, `POST connectors`, `DELETE connector`), each for one request;
    None stands for no fault.
    """

    plugins: list[dict[str, str]] = field(default_factory=list)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    fails: Callable[[dict[str, str]], bool] = lambda _: False
    polls: list[tuple[str, ...]] = field(default_factory=list)
    faults: dict[str, list[Fault | None]] = field(default_factory=dict)
    cluster: str = "cluster-1"

    def __call__(self, request: Request) -> Answer:
        _, root, *parts = map(unquote, request.path.split("?")[0].split("/"))
        resource = root
        if root == "connectors" and parts:
            resource = parts[1] if len(parts) > 1 else "connector"
        faults = self.faults.get(f"{request.method} {resource}")
        fault = faults.pop(0) if faults else None
        if fault is not None and not fault.done:
            return fault.answer
        answer = self._respond(request, root, parts, resource)
        return fault.answer if fault else answer

    def _respond(self, request: Request, root: str, parts: list[str], resource: str) -> Answer:
        method, body = request.method, request.body
        if root != "connectors":
            plugins: object = {"configs": []} if parts else self.plugins
            return 200, plugins if root == "connector-plugins" else {"kafka_cluster_id": self.cluster}
        if not parts:
            return self._create(body) if method == "POST" else (200, self._listing())
        name = parts[0]
        if resource == "offsets":
            return self._offsets(name, method, body)
        if resource == "status" and self.polls:
            return self._poll(name)
        if name not in self.configs:
            return error(404, f"Connector {name} not found")
        return self._connector(name, method, resource, body)

    def _poll(self, name: str) -> Answer:
        states = self.polls.pop(0)
        return (200, status_body(name, *states)) if states else error(404, f"No status found for connector {name}")

    def _create(self, body: dict[str, Any]) -> Answer:
        name = body["name"]
        if name in self.configs:
            return error(409, f"Connector {name} already exists")
        self.configs[name], self.states[name] = body["config"], body.get("initial_state", "RUNNING")
        return 201, {}

    def _listing(self) -> dict[str, object]:
        return {
            name: {"info": {"config": {**config, "name": name}}, "status": self._status(name)}
            for name, config in self.configs.items()
        }

    def _connector(self, name: str, method: str, resource: str, body: dict[str, str] | None) -> Answer:
        if resource == "status":
            return 200, self._status(name)
        if resource == "config":
            if method == "PUT" and body is not None:
                self.configs[name] = body
                self.failed.discard(name)
            return 200, {**self.configs[name], "name": name}
        if method == "DELETE":
            del self.configs[name], self.states[name]
            return 204, None
        if resource in ("restart", "stop"):
            self.failed.discard(name)
        if resource != "restart":
            self.states[name] = {"stop": "STOPPED", "pause": "PAUSED", "resume": "RUNNING"}[resource]
        return 202, None

    def _offsets(self, name: str, method: str, body: Any) -> Answer:  # noqa: ANN401 - JSON
        stored = self.offsets.get(name, [])
        if method == "GET":
            return 200, {"offsets": stored}
        if self.states.get(name) != "STOPPED":
            return error(400, "Connectors must be in the STOPPED state")
        written = body["offsets"] if body else []
        partitions = [entry["partition"] for entry in written]
        retained = [entry for entry in stored if entry["partition"] not in partitions] if body else []
        self.offsets[name] = retained + written
        return 200, {}

    def _status(self, name: str) -> dict[str, object]:
        state = self.states[name]
        failed = name in self.failed or self.fails(self.configs[name])
        return status_body(name, state, *([] if state == "STOPPED" else ["FAILED" if failed else state]))


def status_body(name: str, connector: str, *tasks: str) -> dict[str, object]:
    """Return Connect's status of a connector with these states. FAILED tasks have a stack trace."""
    return {
        "name": name,
        "connector": {"state": connector, "worker_id": "w:1"},
        "tasks": [
            {"id": number, "state": task, "worker_id": "w:2", **({"trace": TRACE} if task == "FAILED" else {})}
            for number, task in enumerate(tasks)
        ],
    }
