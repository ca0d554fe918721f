"""Run the service: `python -m book_rental`; first, once, `python -m book_rental migrate`.

`python -m book_rental request BOOK_ID READER` requests a rental, and `python -m book_rental return RENTAL_ID` ends it.
The environment variables are those of settings.py. SIGTERM ends the service.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import closing
from threading import Event as StopEvent
from uuid import UUID

from book_rental.migration import migrate
from book_rental.rentals import request_rental, return_book
from book_rental.service import Service
from book_rental.settings import Settings


def main() -> None:
    """Run the command of the arguments."""
    logging.basicConfig(level=logging.INFO)
    settings = Settings.from_environment()
    match sys.argv[1:]:
        case []:
            stop = StopEvent()
            signal.signal(signal.SIGTERM, lambda *_: stop.set())
            with closing(Service(settings)) as service:
                service.run(stop)
        case ["migrate"]:
            migrate(settings)
        case ["request", book_id, reader]:
            with settings.connect() as connection:
                logging.info("requested rental %s", request_rental(connection, UUID(book_id), reader))
        case ["return", rental_id]:
            with settings.connect() as connection:
                return_book(connection, UUID(rental_id))
        case _:
            sys.exit("usage: python -m book_rental [migrate | request BOOK_ID READER | return RENTAL_ID]")


if __name__ == "__main__":
    main()
