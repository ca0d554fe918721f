"""Client of the service that charges the deposit of a rental."""

from __future__ import annotations

from http import HTTPStatus

import requests

from outbox_events import Reaction, default_reaction

TIMEOUT_S = (3.0, 10.0)  # to connect, to receive
REFUSED = {402, 422}
# Wrong credentials or address, a request with the same key in progress, an overloaded or stopped service.
UNAVAILABLE = {401, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504}
CONNECTION_ERRORS = requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError


class Deposits:
    """Charges a deposit once per key, however often it is requested."""

    def __init__(self, url: str) -> None:
        self.url = url

    def charge(self, reader: str, *, key: str) -> bool:
        """Charge the deposit; return False if the reader cannot pay it.

        After requests.RequestException it is unknown whether the deposit was charged.
        """
        headers = {"Idempotency-Key": key}
        response = requests.post(f"{self.url}/deposits", json={"reader": reader}, headers=headers, timeout=TIMEOUT_S)
        if response.status_code in REFUSED:
            return False
        response.raise_for_status()
        return True


def reaction(error: Exception) -> Reaction:
    """Wait for a service that is unavailable; give up at once if it cannot read the request."""
    if isinstance(error, CONNECTION_ERRORS):
        return Reaction.WAIT
    if isinstance(error, requests.HTTPError):
        if error.response.status_code in UNAVAILABLE:
            return Reaction.WAIT
        if error.response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Reaction.RECOVER
    return default_reaction(error)
