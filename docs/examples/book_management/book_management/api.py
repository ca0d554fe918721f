"""HTTP API. Bodies are JSON objects.

POST /authors, PUT and DELETE /authors/ID; POST /authors/ID/books, PUT and DELETE /books/ID;
PUT /authors/ID/books/ID moves a book to another author.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import psycopg

from book_management import changes
from book_management.tables import Author, Book, Connection, connect


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
        fields = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        with connect(self.server.dsn) as connection:  # commits at the end, and rolls back after an error
            return str(change(connection, [self.command, *self.path.strip("/").split("/")], fields) or "")

    def log_message(self, format: str, *args: object) -> None:
        """Write to the log of the service."""
        logging.info(format, *args)


def change(connection: Connection, request: list[str], fields: dict[str, Any]) -> UUID | None:
    """Make the change that a request describes."""
    match request:
        case "POST", "authors":
            return changes.add_author(connection, Author(**fields))
        case "PUT", "authors", author:
            return changes.change_author(connection, UUID(author), Author(**fields))
        case "DELETE", "authors", author:
            changes.remove_author(connection, UUID(author))
        case "POST", "authors", author, "books":
            return changes.add_book(connection, UUID(author), Book(**fields))
        case "PUT", "authors", author, "books", book:
            return changes.move_book(connection, UUID(book), UUID(author))
        case "PUT", "books", book:
            return changes.change_book(connection, UUID(book), Book(**fields))
        case "DELETE", "books", book:
            changes.remove_book(connection, UUID(book))
        case _:
            raise LookupError(f"no {' '.join(request)}")
    return None
