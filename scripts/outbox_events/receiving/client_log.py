"""Pass librdkafka's messages to logging, without the repetitions, of which an outage causes 20 per second."""

from __future__ import annotations

import logging
import re
import time

log = logging.getLogger("outbox_events.receiving.client")
REPEAT_S = 60.0
VARYING_TEXT = re.compile(r"\d+ms|, \d+ identical error\(s\) suppressed")


class ClientLog:
    """Logger of a client. A warning or error is logged at most once per REPEAT_S, even if its VARYING_TEXT differs."""

    def __init__(self) -> None:
        self.last_problem = ""
        self._logged_at: dict[str, float] = {}

    def log(self, level: int, template: str, *arguments: object) -> None:
        """Log a message. librdkafka calls this method while the client is polled."""
        if level >= logging.WARNING:
            self.last_problem = str(arguments[-1])
            key, now = VARYING_TEXT.sub("", self.last_problem), time.monotonic()
            if now - self._logged_at.get(key, -REPEAT_S) < REPEAT_S:
                return
            self._logged_at = {text: at for text, at in self._logged_at.items() if now - at < REPEAT_S} | {key: now}
        log.log(level, template, *arguments)
