"""Send requests to Kafka Connect: fail over between workers, retry, and classify errors.

Source: Kafka's HerderRequestHandler and ConnectorsResource. During a rebalance, Connect returns HTTP 409 or, from some
endpoints, 500. It also returns 409 for an existing connector, so errors are classified by message. Only rebalances are
retried. Other failed writes (a timeout in the worker, `failed to modify offsets`) may have taken effect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import requests

from outbox_events.errors import OutboxError, RejectedError, UnreachableError
from outbox_events.http_session import AUTHENTICATION_FAILED, REDIRECTS, HttpSession, error_message
from outbox_events.waiting import Deadline
from outbox_kit.pipeline import HttpService

LOG = logging.getLogger(__name__)
SECTION = "connect"
# This is longer than the worker's own limit of 90 s (DEFAULT_REST_REQUEST_TIMEOUT_MS).
WRITE_TIMEOUT_S = 95.0
# The worker serves reads from memory, so a worker that takes longer than this is unresponsive.
READ_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5.0
VALIDATION_FACTOR = 3
REBALANCE_BUDGET_S = 60
FIRST_PAUSE_S, MAX_PAUSE_S = 0.2, 3.0
REBALANCE_STATUSES = (409, 500)
GATEWAY_STATUSES = (502, 504)
# A proxy returns these statuses if the worker behind it is down. Connect never returns them for a read.
WORKER_DOWN_STATUSES = (502, 503, 504)
REBALANCE_MESSAGES = ("rebalance", "no known leader", "stale configuration", "conflicting operation")
TIMED_OUT_MESSAGE = "request timed out"
# Error that Kafka's RestClient returns if a worker could not forward a request to the leader of the group.
FORWARDING_MESSAGE = "io error trying to forward rest request"
# With one of these causes, the leader has not received the request. The group elects another leader.
LEADER_UNREACHABLE_MESSAGES = ("connect timeout", "connection refused", "no route to host", "unresolvedaddress")
# If the worker does not know the outcome of a write, its error message begins with one of these texts.
UNKNOWN_OUTCOME_MESSAGES = (TIMED_OUT_MESSAGE, "failed to modify offsets", FORWARDING_MESSAGE)
# While a worker starts, its HTTP server responds to each request with a page for HTTP 404 instead of a JSON document.
HTTP_SERVER_OF_CONNECT = "Jetty"
STARTING_HINT = "run the command again in a minute; if the message remains, check connect.url in the environment file"
REBALANCE_HINT = "run the command again; if the error remains, see the workers' logs for the cause of the rebalances"
NOT_CONNECT_HINT = "check connect.url in the environment file, and the proxies between client and worker"
UNKNOWN_OUTCOME_HINT = "the worker may still complete the request: check `outbox plan`, then run the command again"


class RebalanceError(RejectedError):
    """The worker group is rebalancing, or will rebalance because its leader is unreachable. A retry can succeed."""


class NotFoundError(RejectedError):
    """The connector or plugin does not exist (HTTP 404), or the worker does not know the new connector yet."""


class AlreadyExistsError(RejectedError):
    """A connector with the requested name already exists."""


class UnknownOutcomeError(RejectedError):
    """The outcome of a write is unknown. The state must be read before the write is repeated."""


def path_segment(name: str) -> str:
    return quote(name, safe="")


def is_rebalance(reason: str) -> bool:
    """Return whether an error message reports a rebalance, or an unreachable leader, which causes a rebalance.

    Messages that quote a connector name are not searched, because the name can contain the same words.
    """
    message = reason.lower()
    if message.startswith(FORWARDING_MESSAGE):
        return any(fragment in message for fragment in LEADER_UNREACHABLE_MESSAGES)
    quotes_name = message.endswith("already exists") or message.startswith(TIMED_OUT_MESSAGE)
    return not quotes_name and any(fragment in message for fragment in REBALANCE_MESSAGES)


class WorkerUnreachableError(UnreachableError):
    """The worker did not respond to a read, or did not receive a write."""


class RestClient:
    """Sends requests to one worker: the first of `addresses` that responds to a read.

    After this response, requests do not fail over: a read could reach a different cluster, and a write could run twice.
    Raises UnreachableError if no worker responds, and RejectedError or a subclass of RejectedError for other errors.
    """

    def __init__(
        self, service: HttpService, addresses: Sequence[str] = (), *, read_seconds: float | None = None
    ) -> None:
        """`read_seconds` limits each read, and the retries during a rebalance."""
        self._addresses = [*(addresses or [service.url.rstrip("/")])]
        self.url = self._addresses[0]
        self._service = service
        self._read_seconds = read_seconds
        self._session = HttpSession(service.endpoint(), SECTION)

    def close(self) -> None:
        self._session.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request, and retry it during rebalances. Return the JSON response; None if the response is empty."""
        deadline, pause = Deadline(self._read_seconds or REBALANCE_BUDGET_S), FIRST_PAUSE_S
        while True:
            try:
                return self._send(method, path, body)
            except RebalanceError:
                if not deadline.seconds_left:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _send(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        """Send a request to the worker. The first read tries the addresses in order, and selects one that responds."""
        if _is_write(method, path):
            return self._request(method, path, body)
        failures: list[WorkerUnreachableError] = []
        for address in self._addresses:
            self.url = address
            try:
                response = self._request(method, path, body)
            except WorkerUnreachableError as error:
                failures.append(error)
                continue
            except OutboxError:
                self._addresses = [address]
                raise
            self._addresses = [address]
            if failures:
                LOG.warning("note: %s; requests are sent to %s", _joined_messages(failures), address)
            return response
        self.url = self._addresses[0]
        raise WorkerUnreachableError(_joined_messages(failures), failures[0].hint)

    def _request(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        seconds = self._timeout_s(method, path)
        try:
            response = self._session.request(
                method, self.url + path, json=body, timeout=(CONNECT_TIMEOUT_S, seconds), allow_redirects=False
            )
        except requests.RequestException as error:
            raise self._no_response_error(method, path, error, seconds) from None
        if not response.ok or response.status_code in REDIRECTS:
            raise self._response_error(method, path, response)
        if response.status_code == HTTPStatus.NO_CONTENT or (not response.content and method != "GET"):
            return None
        try:
            return response.json()
        except requests.JSONDecodeError:
            message = f"{self.url} is not Kafka Connect: {method} {path} returned no JSON"
            raise UnreachableError(message, NOT_CONNECT_HINT) from None

    def _timeout_s(self, method: str, path: str) -> float:
        """Return a request's time limit. A validation is a read, but takes longer: it connects to the database."""
        if method == "GET":
            return self._read_seconds or READ_TIMEOUT_S
        if self._read_seconds is None or _is_write(method, path):
            return WRITE_TIMEOUT_S
        return VALIDATION_FACTOR * self._read_seconds

    def _no_response_error(
        self, method: str, path: str, error: requests.RequestException, seconds: float
    ) -> WorkerUnreachableError | UnknownOutcomeError:
        failure = self._session.explain(error, seconds=seconds)
        request = f"Kafka Connect at {self.url}: {_without_query(method, path)}"
        if failure.maybe_sent and _is_write(method, path):
            return UnknownOutcomeError(f"{request}: {failure.reason}", UNKNOWN_OUTCOME_HINT)
        if isinstance(error, requests.ReadTimeout):
            return WorkerUnreachableError(f"{request}: {failure.reason}", failure.hint)
        return WorkerUnreachableError(f"cannot reach Kafka Connect at {self.url}: {failure.reason}", failure.hint)

    def _response_error(self, method: str, path: str, response: requests.Response) -> RejectedError | UnreachableError:
        status, connect_message = response.status_code, error_message(response)
        reason = connect_message or str(response.reason)
        request = f"Kafka Connect at {self.url}: {_without_query(method, path)}"
        message = f"{request}: {reason} (HTTP {status})"
        if status in REDIRECTS:
            failure = self._session.explain_redirect(response, path)
            return UnreachableError(f"{request}: {failure.reason} (HTTP {status})", failure.hint)
        if status in AUTHENTICATION_FAILED:
            hint = self._session.explain_rejection(status)
            return (UnreachableError if status == HTTPStatus.UNAUTHORIZED else RejectedError)(message, hint)
        if status in REBALANCE_STATUSES and is_rebalance(reason):
            return RebalanceError(message, REBALANCE_HINT)
        is_unknown = reason.lower().startswith(UNKNOWN_OUTCOME_MESSAGES) or status in GATEWAY_STATUSES
        if _is_write(method, path) and is_unknown:
            return UnknownOutcomeError(message, UNKNOWN_OUTCOME_HINT)
        if status in WORKER_DOWN_STATUSES and method == "GET":
            return WorkerUnreachableError(message, "check that the worker behind this proxy is running")
        return self._rejection(message, connect_message, response)

    def _rejection(
        self, message: str, connect_message: str, response: requests.Response
    ) -> RejectedError | UnreachableError:
        """Return the error for a rejected request. Every HTTP 404 response of Connect's REST API contains a message."""
        status = response.status_code
        if status == HTTPStatus.NOT_FOUND and not connect_message:
            if response.headers.get("Server", "").startswith(HTTP_SERVER_OF_CONNECT):
                return WorkerUnreachableError(f"the worker at {self.url} is still starting: {message}", STARTING_HINT)
            return UnreachableError(f"{self.url} is not Kafka Connect: {message}", NOT_CONNECT_HINT)
        exists = connect_message.lower().endswith("already exists")
        error = NotFoundError if status == HTTPStatus.NOT_FOUND else AlreadyExistsError if exists else RejectedError
        return error(message)


def _joined_messages(errors: Sequence[OutboxError]) -> str:
    return "; ".join(error.message for error in errors)


def _is_write(method: str, path: str) -> bool:
    """Return whether a request changes state. A validation does not change state, although it is a PUT request."""
    return method != "GET" and not path.endswith("/validate")


def _without_query(method: str, path: str) -> str:
    return f"{method} {path.split('?', maxsplit=1)[0]}"
