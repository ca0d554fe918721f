"""Rounds of --interval: the events that end the rounds, and the exit codes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs
from tests.spark.table_under_test import job_for

from outbox_events.errors import ConfigurationError, OutboxError, UnreachableError
from outbox_spark.commands import materialize as command
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.interval import Rounds, Stopped, stopping_on_signals, without_repeats
from outbox_spark.commands.materialize import Runner
from outbox_spark.commands.run_report import failed_outcome
from outbox_spark.commands.workers import SingleWorker
from outbox_spark.errors import OverlapError, SchemaError
from outbox_spark.jobs.model import DeltaTarget, MaterializeJob, Outcome, ReadRange, Status, TableProgress, WriteCounts
from outbox_spark.runs.apply_batch import AppliedBatch

A = structs.replace(job_for(DeltaTarget("/lake")), aggregate="a", table="a", topic="t.a")
B = structs.replace(A, aggregate="b", table="b", topic="t.b")
DOWN = UnreachableError("the broker is down")
WRONG = SchemaError("a column is wrong")


def outcome(job: MaterializeJob, error: OutboxError | None = None) -> Outcome:
    if error is not None:
        return failed_outcome(job, error)
    return Outcome(job.aggregate, job.topic, job.target_name, job.table, Status.CHANGED)


class Script:
    """Returns scripted outcomes, and requests a stop when the script is exhausted."""

    def __init__(self, **errors: list[OutboxError | None]) -> None:
        self.stop = threading.Event()
        self.messages: list[str] = []
        self.ran: list[str] = []
        self._left: dict[str, Iterator[OutboxError | None]] = {name: iter(item) for name, item in errors.items()}

    def attempt(self, job: MaterializeJob, *raised: type[Exception]) -> Outcome:
        try:
            error = next(self._left[job.aggregate])
        except StopIteration:
            self.stop.set()
            raise Stopped from None
        self.ran.append(job.aggregate)
        if error is not None and isinstance(error, raised):
            raise error
        return outcome(job, error)

    def rounds(self, interval: float = 0.001, **options: Any) -> Rounds:  # noqa: ANN401 - the fields of Rounds
        jobs = [job for job in (A, B) if job.aggregate in self._left]
        return Rounds(jobs, SingleWorker(self, self.stop), self.stop, self.messages.append, interval, **options)


class StoppingScript(Script):
    """Requests a stop before each outcome."""

    def request_stop(self) -> None:
        self.stop.set()

    def attempt(self, job: MaterializeJob, *raised: type[Exception]) -> Outcome:
        self.request_stop()
        return super().attempt(job, *raised)


def test_runs_all_tables_in_every_round_until_stopped() -> None:
    script = Script(a=[None, None], b=[None, None])
    rounds = script.rounds()
    assert rounds.run() == Exit.DONE
    assert script.ran == ["a", "b", "a", "b"]
    assert script.messages[0] == "materializing 2 tables every 0.001 s; send SIGTERM or SIGINT to stop"
    assert "stopped after a commit" in script.messages[-2]
    assert script.messages[-1] == "stopped"
    assert [out.status for out in rounds.last_outcomes.values()] == [Status.CHANGED, Status.CHANGED]


def test_retries_a_failed_table() -> None:
    script = Script(a=[DOWN, None], b=[None, None])
    assert script.rounds().run() == Exit.DONE
    assert script.ran == ["a", "b", "a", "b"]
    assert "t.a -> target.a: retrying next round (1 consecutive failures, limit 10)" in script.messages


def test_exits_after_repeated_failures_of_a_table() -> None:
    script = Script(a=[DOWN] * 9, b=[None] * 9)
    assert script.rounds(max_failures=3).run() == Exit.FAILED
    assert script.ran == ["a", "b", "a", "b", "a"]
    assert script.messages[-1] == "ending: t.a -> target.a failed in 3 consecutive rounds"


def test_a_table_that_another_run_has_locked_has_not_failed() -> None:
    script = Script(a=[OverlapError("another run has locked it")] * 4 + [None], b=[None] * 5)
    rounds = script.rounds(max_failures=2)
    assert rounds.run() == Exit.DONE
    assert script.ran == ["a", "b"] * 5
    assert rounds.last_outcomes[0].status is Status.CHANGED
    assert "t.a -> target.a: another run has locked it; trying again in the next rounds" in script.messages


def test_counts_only_consecutive_failures() -> None:
    script = Script(a=[DOWN, DOWN, None, DOWN, DOWN, None])
    assert script.rounds(max_failures=3).run() == Exit.DONE
    assert len(script.ran) == 6


def test_excludes_a_table_that_requires_manual_intervention() -> None:
    script = Script(a=[WRONG, None], b=[None, None])
    assert script.rounds().run() == Exit.REFUSED
    assert script.ran == ["a", "b", "b"]
    assert any("t.a -> target.a: excluded" in text and "exit code will be 4" in text for text in script.messages)
    assert script.messages[-1] == "stopped; tables that were excluded and are not up to date: t.a -> target.a"


def test_fail_fast_exits_at_the_first_non_retryable_table() -> None:
    script = Script(a=[WRONG], b=[None])
    assert script.rounds(fail_fast=True).run() == Exit.REFUSED
    assert script.ran == ["a"]


def test_fail_fast_continues_after_a_retryable_error() -> None:
    script = Script(a=[DOWN, None])
    assert script.rounds(fail_fast=True).run() == Exit.DONE


def test_exits_when_no_table_remains() -> None:
    script = Script(a=[WRONG], b=[None, WRONG])
    assert script.rounds().run() == Exit.REFUSED
    assert script.ran == ["a", "b", "b"]
    assert script.messages[-1] == "ending: every table has an error that is not retryable"


def test_exits_when_the_spark_session_is_lost() -> None:
    """Later rounds would also fail, because only a new process starts a new driver."""
    script = Script(a=[WRONG], b=[None])
    assert script.rounds(driver_responds=lambda: False).run() == Exit.FAILED
    assert script.ran == ["a"]


def test_stops_without_failure_if_the_signal_also_ended_the_jvm() -> None:
    """Service managers send SIGTERM to all processes of a service."""
    assert StoppingScript(a=[DOWN]).rounds(driver_responds=lambda: False).run() == Exit.DONE


def test_does_not_start_the_next_table_after_a_stop_request() -> None:
    script = StoppingScript(a=[None], b=[None])
    assert script.rounds().run() == Exit.DONE
    assert script.ran == ["a"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_wait_for_the_next_round(number: signal.Signals) -> None:
    script = StoppingScript(a=[None])
    script.request_stop = lambda: signal.raise_signal(number)
    before = signal.getsignal(number)
    with stopping_on_signals(script.stop, script.messages.append):
        assert script.rounds(interval=600).run() == Exit.DONE
    assert f"{number.name}: stopping after the current batch; repeat the signal to stop now" in script.messages
    assert signal.getsignal(number) == before


@pytest.fixture
def default_interrupt_handler() -> Iterator[None]:
    """Install Python's handler, because background processes ignore SIGINT, and Spark installs its own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupt_handler")
def test_second_signal_exits_immediately() -> None:
    stop = threading.Event()
    with stopping_on_signals(stop, lambda _: None):
        # Signal this thread, because the system may choose any thread of a process, and kill() does not wait.
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_reports_no_new_records_once() -> None:
    messages: list[str] = []
    report = without_repeats(messages.append)
    for text in [
        "a: nothing new",
        "b: nothing new",
        "a: nothing new",
        "b: 5 records",
        "a: nothing new",
        "b: nothing new",
    ]:
        report(text)
    assert messages == ["a: nothing new", "b: nothing new", "b: 5 records", "b: nothing new"]


# --- the runner: between two batches


def batch(left: int) -> tuple[AppliedBatch, ReadRange, int]:
    committed = TableProgress("t.a", "id", 0, None, {0: 1}, 1)
    return AppliedBatch(committed, 1, 1, WriteCounts(1)), ReadRange("t.a", "id", 0, {0: 0}, {0: 1}), left


def runner(monkeypatch: pytest.MonkeyPatch, left: int) -> Runner:
    """Return a runner that receives a stop request during a batch, after which `left` offsets remain."""
    stop = threading.Event()

    def materialize(
        _: object, job: MaterializeJob, *__: object, on_batch: Callable[..., None], **___: object
    ) -> Outcome:
        stop.set()
        on_batch(*batch(left))
        return outcome(job)

    monkeypatch.setattr(command, "materialize", materialize)
    return Runner(None, lambda _: None, stop=stop)  # type: ignore[arg-type] - Spark is not used


def test_stops_a_run_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stopped):
        runner(monkeypatch, left=5).attempt(A)


def test_does_not_interrupt_a_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner(monkeypatch, left=0).attempt(A).status is Status.CHANGED


def test_detects_that_the_driver_does_not_respond() -> None:
    assert not Runner(None, lambda _: None).driver_responds()  # type: ignore[arg-type]


def test_returns_raised_errors_as_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    def materialize(*_: object, **__: object) -> Outcome:
        raise ConfigurationError("there is no such topic")

    monkeypatch.setattr(command, "materialize", materialize)
    actual = Runner(None, lambda _: None).attempt(A)  # type: ignore[arg-type]
    assert (actual.status, actual.error, actual.transient) == (Status.FAILED, "there is no such topic", False)
