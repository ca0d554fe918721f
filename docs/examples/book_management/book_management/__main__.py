"""Run the service: `python -m book_management`; first, once, `python -m book_management migrate`.

Environment variables: DATABASE_URL, and PORT (default 8000; 0 chooses a free port). SIGTERM ends the service.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from threading import Thread

from book_management.api import Api
from book_management.tables import SCHEMA, TABLES, connect


def main() -> None:
    """Create the tables, or serve until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    dsn = os.environ["DATABASE_URL"]
    if sys.argv[1:] == ["migrate"]:
        with connect(dsn) as connection:
            connection.execute(f"create schema if not exists {SCHEMA}")
            connection.execute(TABLES)
        return
    with Api(dsn, int(os.environ.get("PORT", "8000"))) as api:
        # `shutdown` waits for the end of `serve_forever`, so another thread calls it.
        signal.signal(signal.SIGTERM, lambda *_: Thread(target=api.shutdown).start())
        logging.info("listening on http://127.0.0.1:%d", api.server_port)
        api.serve_forever()


if __name__ == "__main__":
    main()
