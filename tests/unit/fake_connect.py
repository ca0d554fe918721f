"""A Kafka Connect worker in memory: keeps connectors, states and offsets as a worker does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.unit.connect.samples import TRACE
from tests.unit.support import Request

Answer = tuple[int, object]
Offsets = list[dict[str, Any]]


@dataclass
class FakeConnect:
    """Responds to requests like a worker. A connector whose config `fails` accepts gets a FAILED task.

    `configs`, `states` and `offsets` are by connector name.
    """

    plugins: list[dict[str, str]] = field(default_factory=list)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    fails: Callable[[dict[str, str]], bool] = lambda _: False

    def __call__(self, request: Request) -> Answer:
        method, path = request.method, request.path.split("?")[0]
        if path == "/connector-plugins":
            return 200, self.plugins
        if path.endswith("/config/validate"):
            return 200, {"configs": []}
        if path == "/connectors":
            return self._create(request.body) if method == "POST" else (200, self._listing())
        _, _, name, *rest = map(unquote, path.split("/"))
        resource = rest[0] if rest else ""
        if resource == "offsets":
            return self._offsets(name, method, request.body)
        if name not in self.configs:
            return 404, {"error_code": 404, "message": f"Connector {name} not found"}
        return self._connector(name, method, resource, request.body)

    def _create(self, body: dict[str, Any]) -> Answer:
        name = body["name"]
        if name in self.configs:
            return 409, {"error_code": 409, "message": f"Connector {name} already exists"}
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
            return 200, {**self.configs[name], "name": name}
        if method == "DELETE":
            del self.configs[name], self.states[name]
            return 204, None
        self.states[name] = {"stop": "STOPPED", "pause": "PAUSED", "resume": "RUNNING"}[resource]
        return 202, None

    def _offsets(self, name: str, method: str, body: Any) -> Answer:  # noqa: ANN401 - JSON
        if method == "GET":
            return 200, {"offsets": self.offsets.get(name, [])}
        if self.states.get(name) != "STOPPED":
            return 400, {"error_code": 400, "message": "Connectors must be in the STOPPED state"}
        self.offsets[name] = body["offsets"] if body else []
        return 200, {}

    def _status(self, name: str) -> dict[str, object]:
        state = self.states[name]
        failed = self.fails(self.configs[name])
        task = {"id": 0, "state": "FAILED" if failed else state, **({"trace": TRACE} if failed else {})}
        return {"name": name, "connector": {"state": state}, "tasks": [] if state == "STOPPED" else [task]}
