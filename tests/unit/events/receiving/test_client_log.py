"""Repeated messages of a Kafka client are logged once per interval."""

from __future__ import annotations

import logging

import pytest

from outbox_events.receiving import client_log
from outbox_events.receiving.client_log import ClientLog

REFUSED = "127.0.0.1:1: connection refused (after {}ms in state CONNECT)"


def test_repeated_problems_are_logged_once_per_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    now = 100.0
    monkeypatch.setattr(client_log.time, "monotonic", lambda: now)
    logger = ClientLog()
    for number in range(50):
        logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "consumer-1", REFUSED.format(number))
        logger.log(logging.DEBUG, "%s [%s] %s", "STATE", "consumer-1", "CONNECT -> DOWN")
    suppressed = REFUSED.format(0).replace(")", ", 7 identical error(s) suppressed)")
    logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "consumer-1", suppressed)
    logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "consumer-1", "127.0.0.1:2: connection refused")
    now += client_log.REPEAT_S
    logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "consumer-1", REFUSED.format(0))
    problems = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert problems == [
        f"FAIL [consumer-1] {text}"
        for text in (REFUSED.format(0), "127.0.0.1:2: connection refused", REFUSED.format(0))
    ]
    assert logger.last_problem == REFUSED.format(0)
    assert len(caplog.records) == len(problems) + 50
