"""What a command waits for is shown with the elapsed time, on a terminal, and disappears before other output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr

import pytest

from outbox_common import waiting_line
from outbox_common.waiting_line import ERASE_LINE, WaitingLine


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time for the line, which in these tests is only printed by update()."""
    monkeypatch.setattr(waiting_line, "INTERVAL_S", 3600)
    monkeypatch.setattr(waiting_line, "DEFAULT_WIDTH", 40)
    return Clock()


def written_by(clock: Clock, use: Callable[[WaitingLine], object], file_type: type[io.StringIO] = Terminal) -> str:
    """Return what `use` writes while a command waits for "begin"."""
    shown, file = WaitingLine(clock), file_type()
    with redirect_stderr(file), shown.running("begin"):
        use(shown)
        return file.getvalue()


def after(clock: Clock, seconds: float, shown: WaitingLine) -> None:
    clock.now += seconds
    shown.update()


def test_shows_the_elapsed_time_of_a_long_wait(clock: Clock) -> None:
    assert written_by(clock, lambda shown: after(clock, 1.9, shown)) == ""
    assert written_by(clock, lambda shown: after(clock, 12, shown)) == f"{ERASE_LINE}begin (12 s)"


def test_other_output_erases_the_line_and_begins_a_new_wait(clock: Clock) -> None:
    def use(shown: WaitingLine) -> None:
        after(clock, 5, shown)
        shown.start("next")
        after(clock, 1, shown)
        after(clock, 2, shown)
        shown.start("")
        after(clock, 9, shown)

    assert written_by(clock, use) == f"{ERASE_LINE}begin (5 s){ERASE_LINE}{ERASE_LINE}next (3 s){ERASE_LINE}"


def test_the_line_fits_the_terminal(clock: Clock) -> None:
    def use(shown: WaitingLine) -> None:
        shown.start("x" * 100)
        after(clock, 5, shown)

    line = written_by(clock, use).removeprefix(ERASE_LINE)
    assert (len(line), line[-6:]) == (39, "x (5 s)"[-6:])


def test_the_line_is_erased_while_other_output_is_printed(clock: Clock) -> None:
    def use(shown: WaitingLine) -> None:
        after(clock, 5, shown)
        with shown.erased(), shown.erased():  # as in a signal handler
            sys.stderr.write("message\n")
        after(clock, 1, shown)

    assert written_by(clock, use) == f"{ERASE_LINE}begin (5 s){ERASE_LINE}message\n{ERASE_LINE}begin (6 s)"


def test_shows_nothing_after_the_command(clock: Clock) -> None:
    shown, file = WaitingLine(clock), Terminal()
    with redirect_stderr(file):
        with shown.running("begin"):
            pass
        shown.start("ended")
        after(clock, 9, shown)
    assert file.getvalue() == ""


def test_shows_nothing_without_a_terminal(clock: Clock) -> None:
    assert written_by(clock, lambda shown: after(clock, 9, shown), io.StringIO) == ""
