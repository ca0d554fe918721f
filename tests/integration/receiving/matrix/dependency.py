"""The service that handlers call in one case, which is a separate path on the WireMock server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import requests

SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """How the service answers a call."""

    status: int = 200
    delay_s: float = 0


class Dependency:
    """Answers each call with status 200 unless a test sets other answers, and counts the calls by event."""

    def __init__(self, server: str, name: str) -> None:
        self._server = server
        self._path = f"/{name}"
        self.answer(Answer())

    def call(self, event_id: str) -> None:
        """Call the service. Raises requests.HTTPError for a status of 400 and above."""
        self._post(f"{self._path}/{event_id}")

    def answer(self, *answers: Answer, event_id: str = "") -> None:
        """Answer the calls for an event (by default, for each event) with these answers in turn, repeating the last.

        These answers take precedence over answers that were set earlier.
        """
        for number, answer in enumerate(answers):
            mapping = {
                "request": self._pattern(event_id),
                "response": {"status": answer.status, "fixedDelayMilliseconds": round(answer.delay_s * 1000)},
            }
            if len(answers) > 1:
                following = min(number + 1, len(answers) - 1)
                mapping |= {
                    "scenarioName": f"{self._path}/{event_id}",
                    "requiredScenarioState": f"answer {number}" if number else "Started",
                    "newScenarioState": f"answer {following}",
                }
            self._admin("mappings", mapping)

    def calls(self, event_id: str = "") -> int:
        """Return the number of calls for an event (by default, for all events), including unanswered calls."""
        return int(self._admin("requests/count", self._pattern(event_id))["count"])

    def _pattern(self, event_id: str) -> dict[str, str]:
        return {"method": "POST", "urlPathPattern": f"{self._path}/{event_id or '.*'}"}

    def _admin(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self._post(f"/__admin/{operation}", json=body).json()
        return result

    def _post(self, path: str, json: dict[str, Any] | None = None) -> requests.Response:
        with requests.Session() as session:
            # The cases run in threads, which must not read the environment while pytest changes it for each test.
            session.trust_env = False
            response = session.post(f"{self._server}{path}", json=json, timeout=SECONDS)
        response.raise_for_status()
        return response
