"""A receiver ends although a server is frozen, and a frozen receiver does not block the events that it has claimed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker
from tests.integration.receiving.service import SECONDS, Service, run_until

from outbox_events import ProcessedEvents, WithoutDeduplication
from outbox_events.receiving.exit_limit import EXIT_CODE
from outbox_kit.stack import Stack
from outbox_kit.stack.processes import find_processes, send_signal

REPOSITORY = Path(__file__).parents[3]
CHILD = Path(__file__).with_name("stopping_process.py")
IDLE_MS = 700


@contextmanager
def running(service: Service) -> Iterator[subprocess.Popen[str]]:
    """Run a receiver in a child process."""
    command = [sys.executable, str(CHILD), service.bootstrap, service.dsn, service.topic, service.group]
    environ = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'scripts'}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        try:
            yield child
        finally:
            child.kill()


def backend_of(child: subprocess.Popen[str]) -> int:
    """Return the id of the child's PostgreSQL backend when the child handles an event."""
    assert child.stdout is not None
    return int(child.stdout.readline())


def go_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_sigterm_ends_the_process_while_the_broker_is_frozen(service: Service, stack: Stack) -> None:
    service.send(("a", "1"))
    with running(service) as child:
        backend_of(child)
        broker = find_processes(stack.layout, ("kafka",))
        send_signal(broker, signal.SIGSTOP)
        try:
            go_on(child)
            child.terminate()
            _, errors = child.communicate(timeout=SECONDS / 2)
        finally:
            send_signal(broker, signal.SIGCONT)
    assert child.returncode == 1
    assert f"did not leave group {service.group} within 1 s" in errors
    assert service.effects() == ["1"]


def test_sigterm_ends_the_process_while_the_database_is_frozen(service: Service) -> None:
    service.send(("a", "1"))
    with running(service) as child:
        backend = backend_of(child)
        os.kill(backend, signal.SIGSTOP)
        try:
            go_on(child)
            child.terminate()
            _, errors = child.communicate(timeout=SECONDS / 2)
        finally:
            os.kill(backend, signal.SIGCONT)
    assert child.returncode == EXIT_CODE
    assert "in write_effect" in errors
    assert service.effects() == []


def suspend_after_claim(service: Service) -> subprocess.Popen[str]:
    """Start a process that claims event 1, and suspend it in its transaction."""
    program = f"""
import psycopg, sys
from outbox_events import Event, ProcessedEvents
once = ProcessedEvents(lambda: psycopg.connect({service.dsn!r}), {service.group!r})
once.bind(None, {{"group.id": "g", "max.poll.interval.ms": {IDLE_MS}}})
with once.transaction([Event("t", 0, 0, b"a", b"", {{"event_id": "1"}})]):
    print("claimed", flush=True)
    sys.stdin.readline()
"""
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", program], text=True, stdin=pipe, stdout=pipe, cwd=REPOSITORY)
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    child.send_signal(signal.SIGSTOP)
    return child


def test_a_suspended_receiver_does_not_block_the_next_owner_of_its_events(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"))
    with suspend_after_claim(service) as suspended:
        try:
            with service.receiver(ProcessedEvents(service.connect, service.group)) as receiver:
                run_until(receiver, "the event", lambda: service.effects() == ["1"], 20)
                assert receiver.counters.retries == 0
        finally:
            suspended.kill()


@pytest.mark.parametrize("own", ["0", "9000"])
def test_idle_transactions_are_limited_unless_the_service_limits_them(service: Service, own: str) -> None:
    options = f"-c idle_in_transaction_session_timeout={own}"
    shown = "select current_setting('idle_in_transaction_session_timeout')"
    limit = {"0": "700ms", "9000": "9s"}[own]

    def connect() -> psycopg.Connection:
        return psycopg.connect(service.dsn, options=options)

    engine = create_engine("postgresql+psycopg://", creator=connect)
    sessions, connections = WithoutDeduplication(sessionmaker(engine)), WithoutDeduplication(connect)
    found: list[str] = []
    for strategy in (sessions, connections):
        strategy.bind(None, {"max.poll.interval.ms": IDLE_MS})  # type: ignore[arg-type]
        for _ in range(2):
            with strategy.transaction([]) as work:
                statement = text(shown) if strategy is sessions else shown
                found.append(work.context.execute(statement).fetchone()[0])
        strategy.close()
    engine.dispose()
    assert found == [limit] * 4
