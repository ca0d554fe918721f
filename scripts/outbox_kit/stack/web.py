"""GET requests to the parts that answer over HTTP."""

from __future__ import annotations

import requests

from outbox_kit.stack.part import LOOK_SECONDS


def get(url: str) -> requests.Response:
    """Send one bounded GET to 127.0.0.1, past any proxy that the environment names."""
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=LOOK_SECONDS)
