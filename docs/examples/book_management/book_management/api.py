"""HTTP API: POST /authors, PUT and DELETE /authors/ID, and the same for /books. Bodies are JSON objects."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import signature
from uuid import UUID

import psycopg

from book_management import changes
from book_management.tables import connect

CHANGES: dict[tuple[str, str], Callable[..., UUID | None]] = {
    ("POST", "authors"): changes.add_author,
    ("PUT", "authors"): changes.change_author,
    ("DELETE", "authors"): changes.remove_author,
    ("POST", "books"): changes.add_book,
    ("PUT", "books"): changes.change_book,
    ("DELETE", "books"): changes.remove_book,
}


class Api(ThreadingHTTPServer):
    """Server on 127.0.0.1."""

    def __init__(self, dsn: str, port: int) -> None:
        super().__init__(("127.0.0.1", port), Request)
        self.dsn = dsn


class Request(BaseHTTPRequestHandler):
    """One request, in a transaction of its own."""

    server: Api

    def do_POST(self) -> None:
        """Run the change and respond."""
        try:
            status, body = HTTPStatus.OK, self._change()
        except LookupError as error:
            status, body = HTTPStatus.NOT_FOUND, str(error.args[0])
        except (ValueError, TypeError) as error:
            status, body = HTTPStatus.BAD_REQUEST, str(error)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            status, body = HTTPStatus.BAD_REQUEST, error.diag.message_primary or "invalid value"
        except psycopg.OperationalError:
            logging.exception("the database is not available")
            status, body = HTTPStatus.SERVICE_UNAVAILABLE, "try again later"
        content = json.dumps({"id" if status is HTTPStatus.OK else "error": body}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_DELETE = do_POST  # noqa: N815

    def _change(self) -> str:
        """Return the id of the added or changed aggregate; empty if it was removed."""
        collection, *key = self.path.strip("/").split("/")
        change = CHANGES.get((self.command, collection))
        if change is None:
            raise LookupError(f"no {self.command} of {collection}")
        fields = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        with connect(self.server.dsn) as connection:  # commits at the end, and rolls back after an error
            call = signature(change).bind(connection, *key, **fields)
            return str(change(*call.args, **call.kwargs) or "")

    def log_message(self, format: str, *args: object) -> None:
        """Write to the log of the service."""
        logging.info(format, *args)
