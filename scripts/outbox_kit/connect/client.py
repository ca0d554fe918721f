"""Kafka Connect's REST API, one method per endpoint, no policy beyond telling errors apart.

Source of what is retried: Kafka's HerderRequestHandler and ConnectorsResource. A rebalance is answered with
409, or with 500 by some endpoints; a connector that exists already is answered with 409 too, so the message
decides. A write that timed out in the worker may have happened, so nothing is retried but rebalances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from outbox_kit.errors import RejectedError, UnreachableError
from outbox_kit.pipeline import HttpService

# The worker itself gives up on a request after 90 s (DEFAULT_REST_REQUEST_TIMEOUT_MS); be more patient than it.
READ_TIMEOUT_S = 95
CONNECT_TIMEOUT_S = 5
REBALANCE_BUDGET_S = 60
NO_CONTENT = 204
NOT_FOUND = 404
REBALANCE_STATUS = (409, 500)
REBALANCE_WORDS = ("rebalance", "no known leader", "stale configuration", "conflicting operation")


class RebalanceError(RejectedError):
    """The worker group is settling; the same request works in a moment."""


class NotFoundError(RejectedError):
    """There is no such connector, or not yet."""


def is_rebalance(reason: str) -> bool:
    """Whether the same request works in a moment. A connector may be called `rebalance`: so what is final first."""
    lower = reason.lower()
    final = lower.endswith("already exists") or lower.startswith("request timed out")
    return not final and any(word in lower for word in REBALANCE_WORDS)


@dataclass(frozen=True)
class ConnectorStatus:
    """State of a connector and of its tasks; `traces` holds the failures' stack traces."""

    connector: str
    tasks: tuple[str, ...]
    traces: tuple[str, ...]

    @property
    def words(self) -> str:
        tasks = ", ".join(self.tasks) or "no task yet"
        return f"connector {self.connector}, tasks: {tasks}"


class ConnectClient:
    """One Connect cluster. Raises UnreachableError, RejectedError (NotFoundError for 404)."""

    def __init__(self, service: HttpService) -> None:
        self.url = service.url.rstrip("/")
        self._session = requests.Session()
        # No proxies, no .netrc: the credentials are those of the environment file.
        self._session.trust_env = False
        if service.username and service.password:
            self._session.auth = (service.username, service.password.get_secret_value())

    def close(self) -> None:
        self._session.close()

    def root(self) -> dict[str, Any]:
        """version, commit, kafka_cluster_id."""
        return dict(self._call("GET", "/"))

    def plugins(self) -> list[str]:
        """Class names of every plugin (connectors, transforms, converters) of the worker that answers."""
        return [entry["class"] for entry in self._call("GET", "/connector-plugins?connectorsOnly=false")]

    def config(self, name: str) -> dict[str, str] | None:
        """Config of a connector with placeholders as written, None where there is none."""
        try:
            return dict(self._call("GET", f"/connectors/{name}/config"))
        except NotFoundError:
            return None

    def status(self, name: str) -> ConnectorStatus | None:
        """None right after creation: workers read the status topic a moment later."""
        try:
            body = self._call("GET", f"/connectors/{name}/status")
        except NotFoundError:
            return None
        everything = [body["connector"], *body["tasks"]]
        return ConnectorStatus(
            connector=body["connector"]["state"],
            tasks=tuple(task["state"] for task in body["tasks"]),
            traces=tuple(part["trace"] for part in everything if part.get("trace")),
        )

    def validate(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Errors by key. The worker's answer also holds resolved values; they are dropped unread."""
        plugin = config["connector.class"]
        body = self._call("PUT", f"/connector-plugins/{plugin}/config/validate", {"name": name, **config})
        values = [entry["value"] for entry in body["configs"] if entry.get("value")]
        return {value["name"]: value["errors"] for value in values if value["errors"]}

    def create_stopped(self, name: str, config: dict[str, str]) -> None:
        """Create a connector that does not run yet, so that its offsets can be seeded."""
        self._call("POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"})

    def update(self, name: str, config: dict[str, str]) -> None:
        self._call("PUT", f"/connectors/{name}/config", config)

    def resume(self, name: str) -> None:
        self._call("PUT", f"/connectors/{name}/resume")

    def stop(self, name: str) -> None:
        """Stop the connector and give up its tasks; its config and offsets stay."""
        self._call("PUT", f"/connectors/{name}/stop")

    def restart(self, name: str) -> None:
        """Restart the connector and its tasks."""
        self._call("POST", f"/connectors/{name}/restart?includeTasks=true")

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """[{partition, offset}], empty before the first commit."""
        return list(self._call("GET", f"/connectors/{name}/offsets")["offsets"])

    def delete_offsets(self, name: str) -> None:
        """Only a STOPPED connector without tasks accepts this."""
        self._call("DELETE", f"/connectors/{name}/offsets")

    def patch_offsets(self, name: str, partition: dict[str, str], offset: dict[str, Any]) -> None:
        """Only a STOPPED connector without tasks accepts this."""
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        self._call("PATCH", f"/connectors/{name}/offsets", body)

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        retrying = Retrying(
            stop=stop_after_delay(REBALANCE_BUDGET_S),
            wait=wait_exponential(multiplier=0.2, max=3),
            retry=retry_if_exception_type(RebalanceError),
            reraise=True,
        )
        return retrying(self._request, method, path, body)

    def _request(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        try:
            response = self._session.request(
                method, self.url + path, json=body, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
            )
        except requests.RequestException as error:
            raise UnreachableError(
                f"cannot reach Kafka Connect at {self.url}: {type(error).__name__}",
                "check connect.url in the environment file; is a worker up?",
            ) from None
        if not response.ok:
            raise self._error(method, path, response)
        if response.status_code == NO_CONTENT or (not response.content and method != "GET"):
            return None
        try:
            return response.json()
        except requests.JSONDecodeError:
            raise UnreachableError(
                f"{self.url} answers, but not as Kafka Connect does: {method} {path} gave no JSON",
                "check connect.url in the environment file; is there a proxy in between?",
            ) from None

    def _error(self, method: str, path: str, response: requests.Response) -> RejectedError:
        try:
            reason = str(response.json()["message"])
        except (ValueError, KeyError, TypeError):
            reason = response.reason
        where = f"Kafka Connect at {self.url}: {method} {path.split('?', maxsplit=1)[0]}"
        message = f"{where}: {reason} (HTTP {response.status_code})"
        if response.status_code == NOT_FOUND:
            return NotFoundError(message)
        if response.status_code in REBALANCE_STATUS and is_rebalance(reason):
            return RebalanceError(message, "the worker group keeps rebalancing; look at the workers' logs")
        return RejectedError(message)
