"""Stop the receiver if a handler ends the transaction of its events, which only the receiver may do.

The event is not the cause, so it must become neither a dead letter nor a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from outbox_events.producing.database import MARK
from outbox_events.receiving.recoverers import ReceiverStoppedError

MARK_WITH_ID = f"{MARK}, pg_current_xact_id()::text"
READ_OUTCOME = "select pg_xact_status(cast({} as xid8))"
HINT = "remove commit and rollback from the handlers, and execute statements that may fail in a savepoint"
CHECK_HINT = (
    "remove SQL such as commit, rollback and reset all from the handlers, and check the effects of these events"
)


class TransactionEndedError(ReceiverStoppedError):
    """A handler has ended the transaction of its events, so some of their effects might be committed."""

    def __init__(
        self, message: str = "a handler or recoverer ended the transaction of its events", hint: str = CHECK_HINT
    ) -> None:
        super().__init__(message, hint)


class StatementLeftOpenError(TransactionEndedError):
    """A handler has left a statement open, so it is unknown whether it has also ended the transaction."""

    def __init__(self) -> None:
        message = "a handler or recoverer left a pipeline, COPY or stream of rows open"
        super().__init__(message, "close it in the handler, for example with `with connection.pipeline():`")


@contextmanager
def refused(transaction: object, *methods: str) -> Iterator[Callable[..., NoReturn]]:
    """Replace methods of the object in the block by a function that raises ReceiverStoppedError. Yield this function.

    The error is raised again at the end of the block if a handler has ignored it or replaced it by another error.
    """
    is_called = False

    def refuse(*_: object) -> NoReturn:
        nonlocal is_called
        is_called = True
        raise ReceiverStoppedError(
            "a handler or recoverer tried to end the transaction of its events; nothing was committed", HINT
        )

    vars(transaction).update(dict.fromkeys(methods, refuse))
    try:
        yield refuse
    except ReceiverStoppedError:
        raise
    except Exception:
        if is_called:
            refuse()
        raise
    finally:
        for method in methods:
            del vars(transaction)[method]
    if is_called:
        refuse()
