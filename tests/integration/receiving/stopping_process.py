"""Child process with a receiver, to be stopped while a server is frozen, or to be suspended itself.

    python stopping_process.py BOOTSTRAP DSN TOPIC GROUP

For each event, the process prints the id of its PostgreSQL backend, reads a line, and executes a statement.
"""

from __future__ import annotations

import signal
import sys
from threading import Event as StopEvent

import psycopg
from tests.integration.receiving.service import Service

from outbox_events import Event, ProcessedEvents

STOP_S = 1


def main() -> None:
    service = Service(*sys.argv[1:])
    stop = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    @service.handlers.otherwise
    def apply(event: Event, connection: psycopg.Connection) -> None:
        print(connection.info.backend_pid, flush=True)
        sys.stdin.readline()
        service.write_effect(event, connection)

    receiver = service.receiver(ProcessedEvents(service.connect), settings={"session.timeout.ms": 6000})
    try:
        receiver.run(stop, poll_s=0.1, exit_s=STOP_S)
    finally:
        receiver.close(seconds=STOP_S)


main()
