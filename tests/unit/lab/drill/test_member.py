"""A member of the drill ends its process after the errors for which the documents of the library require it."""

from __future__ import annotations

import os
from threading import Event as Flag

import pytest

from outbox_events import ClientStuckError, ReceiverStoppedError
from outbox_lab.drill.receivers.member import Member, MemberSettings


class ProcessEndedError(BaseException):
    pass


def end(_: int) -> None:
    raise ProcessEndedError


@pytest.mark.parametrize(
    ("error", "opened"), [(ClientStuckError("hangs"), 1), (ReceiverStoppedError("stopped"), 1), (ValueError(), 2)]
)
def test_ends_its_process(monkeypatch: pytest.MonkeyPatch, error: Exception, opened: int) -> None:
    stop, errors, calls = Flag(), [error, ReceiverStoppedError("stopped")], list[int]()

    def fail() -> None:
        calls.append(1)
        raise errors[len(calls) - 1]

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr("outbox_lab.drill.receivers.member.RESTART_INTERVAL_S", 0)
    member = Member(MemberSettings("", "", "t", ("stored-offsets",), "range", ""), "stored-offsets", stop)
    monkeypatch.setattr(member, "_receiver", fail)
    with pytest.raises(ProcessEndedError):
        member.run()
    assert len(calls) == opened
