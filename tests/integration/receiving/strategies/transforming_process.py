"""Child process that receives events, to be killed.

    python transforming_process.py BOOTSTRAP TOPIC OUTPUT GROUP EVENT_ID [TRANSACTIONAL_ID]

The process prints a line when the records of a transaction up to EVENT_ID are on the brokers, and then waits.
"""

from __future__ import annotations

import sys
import threading

from tests.integration.receiving.strategies.transforming import TransformingService

from outbox_events import Event
from outbox_events.producing.deliveries import KafkaTransaction

BOOTSTRAP, TOPIC, OUTPUT, GROUP, EVENT_ID, *TRANSACTIONAL_ID = sys.argv[1:]


def main() -> None:
    service = TransformingService(BOOTSTRAP, "", TOPIC, GROUP, output=OUTPUT)

    @service.handlers.otherwise
    def forward(event: Event, transaction: KafkaTransaction) -> None:
        service.forward(event, transaction)
        if event.event_id == EVENT_ID:
            transaction.flush()
            print("in transaction", flush=True)
            threading.Event().wait(120)

    settings = {"partition.assignment.strategy": "range"}
    strategy = service.strategy(*TRANSACTIONAL_ID)
    with service.receiver(strategy, settings=settings, batch_size=10) as receiver:
        receiver.run(threading.Event(), poll_s=0.1)


main()
