"""How requests to Kafka Connect are sent, retried and told apart when they fail.

Source of what is retried: Kafka's HerderRequestHandler and ConnectorsResource. A rebalance is answered with
409, or with 500 by some endpoints; a connector that exists already is answered with 409 too, so the message
decides. A write that timed out in the worker may have happened, so nothing is retried but rebalances. The same
is true of offsets that the worker `failed to modify`: anywhere between fencing the tasks and the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from outbox_common.http import HttpSession
from outbox_kit.errors import OutboxKitError, RejectedError, UnreachableError
from outbox_kit.pipeline import HttpService

LOG = logging.getLogger(__name__)
SECTION = "connect"
# The worker itself gives up on a write after 90 s (DEFAULT_REST_REQUEST_TIMEOUT_MS); be more patient than it.
WRITE_TIMEOUT_S = 95.0
# Reads are answered from memory; a worker that takes longer hangs, and a person waits.
READ_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5.0
REBALANCE_BUDGET_S = 60
NO_CONTENT = 204
NOT_FOUND = 404
UNAUTHORIZED = 401
FORBIDDEN = 403
REDIRECTS = range(300, 400)
REBALANCE_STATUS = (409, 500)
GATEWAY_STATUS = (502, 504)
# A proxy whose worker is down; Connect itself answers reads with none of them.
NOBODY_BEHIND = (502, 503, 504)
REBALANCE_WORDS = ("rebalance", "no known leader", "stale configuration", "conflicting operation")
NOT_CONNECT = "check connect.url in the environment file; is there a proxy in between?"
MAYBE_DONE = "the worker may still do it: look at `outbox plan`, then run the command again"


class RebalanceError(RejectedError):
    """The worker group is settling; the same request works in a moment."""


class NotFoundError(RejectedError):
    """There is no such connector, or not yet."""


class AlreadyExistsError(RejectedError):
    """There is a connector of that name."""


class MaybeDoneError(RejectedError):
    """A write without an answer: it may have happened. Read again before deciding."""


def segment(name: str) -> str:
    """A name as part of a URL path."""
    return quote(name, safe="")


def is_rebalance(reason: str) -> bool:
    """Whether the same request works in a moment. A connector may be called `rebalance`: so what is final first."""
    lower = reason.lower()
    final = lower.endswith("already exists") or is_time_out(lower)
    return not final and any(word in lower for word in REBALANCE_WORDS)


def is_time_out(reason: str) -> bool:
    """The worker gave up waiting for its own herder; what was asked for may still be done."""
    return reason.lower().startswith("request timed out")


def is_unsettled(reason: str) -> bool:
    """Whether the worker itself does not know if it did what was asked for."""
    return is_time_out(reason) or reason.lower().startswith("failed to modify offsets")


class NobodyThereError(UnreachableError):
    """This worker did not answer a read, or was never sent the write."""


class RestClient:
    """Sends requests to one worker: the first of its addresses that answers a read.

    Another one is asked only before that. Later a read could come from another cluster than the one that was looked at,
    and a write could be made twice. Raises UnreachableError when no worker answers, RejectedError and its kinds above.
    """

    def __init__(self, service: HttpService, addresses: Sequence[str] = ()) -> None:
        self._addresses = [*(addresses or [service.url.rstrip("/")])]
        self.url = self._addresses[0]
        self._service = service
        self._session = HttpSession(service.endpoint(), SECTION)

    def close(self) -> None:
        self._session.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request until no rebalance is in its way; the answer as JSON, None where it is empty."""
        retrying = Retrying(
            stop=stop_after_delay(REBALANCE_BUDGET_S),
            wait=wait_exponential(multiplier=0.2, max=3),
            retry=retry_if_exception_type(RebalanceError),
            reraise=True,
        )
        return retrying(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        """Ask the worker; before one has answered, each in turn."""
        if _writes(method, path):
            return self._request(method, path, body)
        silent: list[NobodyThereError] = []
        for address in self._addresses:
            self.url = address
            try:
                answer = self._request(method, path, body)
            except NobodyThereError as error:
                silent.append(error)
                continue
            except OutboxKitError:
                self._addresses = [address]
                raise
            self._addresses = [address]
            if silent:
                LOG.warning("note: %s; this command works through %s", _words(silent), address)
            return answer
        self.url = self._addresses[0]
        raise NobodyThereError(_words(silent), silent[0].hint)

    def _request(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        seconds = READ_TIMEOUT_S if method == "GET" else WRITE_TIMEOUT_S
        try:
            # Not redirected: a PUT that is sent elsewhere becomes a GET, and its answer would pass for success.
            response = self._session.request(
                method, self.url + path, json=body, timeout=(CONNECT_TIMEOUT_S, seconds), allow_redirects=False
            )
        except requests.RequestException as error:
            raise self._unanswered(method, path, error, seconds) from None
        if not response.ok or response.status_code in REDIRECTS:
            raise self._error(method, path, response)
        if response.status_code == NO_CONTENT or (not response.content and method != "GET"):
            return None
        try:
            return response.json()
        except requests.JSONDecodeError:
            raise UnreachableError(
                f"{self.url} answers, but not as Kafka Connect does: {method} {path} gave no JSON",
                NOT_CONNECT,
            ) from None

    def _unanswered(
        self, method: str, path: str, error: requests.RequestException, seconds: float
    ) -> NobodyThereError | MaybeDoneError:
        failure = self._session.explain(error, seconds=seconds)
        where = _without_query(method, path)
        if failure.sent and _writes(method, path):
            return MaybeDoneError(f"Kafka Connect at {self.url}: {where}: {failure.reason}", MAYBE_DONE)
        if isinstance(error, requests.ReadTimeout):
            return NobodyThereError(f"Kafka Connect at {self.url}: {where}: {failure.reason}", failure.hint)
        return NobodyThereError(f"cannot reach Kafka Connect at {self.url}: {failure.reason}", failure.hint)

    def _error(self, method: str, path: str, response: requests.Response) -> RejectedError | UnreachableError:
        status, words = response.status_code, _error_body(response)
        reason = words or str(response.reason)
        where = f"Kafka Connect at {self.url}: {_without_query(method, path)}"
        message = f"{where}: {reason} (HTTP {status})"
        if status in REDIRECTS:
            there = response.headers.get("Location", "another address")
            return UnreachableError(f"{where}: redirected to {there}", "put the final address into connect.url")
        if status in (UNAUTHORIZED, FORBIDDEN):
            hint = self._session.explain_rejection(status)
            return (UnreachableError if status == UNAUTHORIZED else RejectedError)(message, hint)
        if status in REBALANCE_STATUS and is_rebalance(reason):
            return RebalanceError(message, "the worker group keeps rebalancing; look at the workers' logs")
        if _writes(method, path) and (is_unsettled(reason) or status in GATEWAY_STATUS):
            return MaybeDoneError(message, MAYBE_DONE)
        if status in NOBODY_BEHIND and method == "GET":
            return NobodyThereError(message, "is the worker behind this address up?")
        return self._refusal(message, status, words)

    def _refusal(self, message: str, status: int, words: str) -> RejectedError | UnreachableError:
        """What the worker itself decided; an error that is not in Connect's form is a proxy's or another service's."""
        if status == NOT_FOUND and not words:
            return UnreachableError(f"{self.url} answers, but not as Kafka Connect does: {message}", NOT_CONNECT)
        exists = words.lower().endswith("already exists")
        kind = NotFoundError if status == NOT_FOUND else AlreadyExistsError if exists else RejectedError
        return kind(message)


def _words(errors: Sequence[OutboxKitError]) -> str:
    return "; ".join(error.message for error in errors)


def _writes(method: str, path: str) -> bool:
    """Whether a request changes something; a config is validated by PUT."""
    return method != "GET" and not path.endswith("/validate")


def _without_query(method: str, path: str) -> str:
    return f"{method} {path.split('?', maxsplit=1)[0]}"


def _error_body(response: requests.Response) -> str:
    """The words of an error in Connect's form; empty for another one."""
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return ""
