"""What a command waits for is shown with the elapsed time, on a terminal, and disappears before other output."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from outbox_kit.cli import waiting as module
from outbox_kit.cli.waiting import ERASE_LINE, Waiting


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time for the line, which in these tests is only printed by update()."""
    monkeypatch.setattr(module, "INTERVAL_S", 3600)
    return Clock()


def written_by(clock: Clock, use: Callable[[Waiting], object], *, is_terminal: bool = True) -> str:
    """Return what `use` writes while a command waits for "begin"."""
    file = io.StringIO()
    shown = Waiting(Console(file=file, force_terminal=is_terminal, width=40), clock)
    with shown.running("begin"):
        use(shown)
        return file.getvalue()


def after(clock: Clock, seconds: float, shown: Waiting) -> None:
    clock.now += seconds
    shown.update()


def test_shows_the_elapsed_time_of_a_long_wait(clock: Clock) -> None:
    assert written_by(clock, lambda shown: after(clock, 1.9, shown)) == ""
    assert written_by(clock, lambda shown: after(clock, 12, shown)) == f"{ERASE_LINE}begin (12 s)"


def test_other_output_erases_the_line_and_begins_a_new_wait(clock: Clock) -> None:
    def use(shown: Waiting) -> None:
        after(clock, 5, shown)
        shown.start("next")
        after(clock, 1, shown)
        after(clock, 2, shown)
        shown.start("")
        after(clock, 9, shown)

    assert written_by(clock, use) == f"{ERASE_LINE}begin (5 s){ERASE_LINE}{ERASE_LINE}next (3 s){ERASE_LINE}"


def test_the_line_fits_the_terminal(clock: Clock) -> None:
    def use(shown: Waiting) -> None:
        shown.start("x" * 100)
        after(clock, 5, shown)

    line = written_by(clock, use).removeprefix(ERASE_LINE)
    assert (len(line), line[-6:]) == (39, "x (5 s)"[-6:])


def test_shows_nothing_without_a_terminal_or_after_the_command(clock: Clock) -> None:
    assert written_by(clock, lambda shown: after(clock, 9, shown), is_terminal=False) == ""
    file = io.StringIO()
    shown = Waiting(Console(file=file, force_terminal=True), clock)
    with shown.running("begin"):
        pass
    shown.start("ended")
    after(clock, 9, shown)
    assert file.getvalue() == ""
