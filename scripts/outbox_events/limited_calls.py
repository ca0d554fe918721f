"""Call functions with a time limit, after which the call is abandoned but continues in its thread.

Some calls of librdkafka wait without a limit while a broker does not respond, although they have a time limit:
`Consumer.close()` and `Producer.send_offsets_to_transaction()`, for example. Statements of PostgreSQL wait while the
server is frozen. A signal handler might not run during such a call. Therefore the call runs in another thread, and the
calling thread waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread, main_thread
from typing import TypeVar

from outbox_events.errors import WaitTimeoutError

T = TypeVar("T")
GRACE_S = 5.0
"""Time by which a call may exceed its own time limit."""


class ClientStuckError(WaitTimeoutError):
    """A call of a Kafka or database client did not return. The client cannot be used again, not even to close it."""


def call(action: str, function: Callable[[], T], *, seconds: float) -> T:
    """Call `function` in a daemon thread, and return its result or raise its exception.

    Callbacks of the client run in that thread too. Raises ClientStuckError if the call has not returned after
    `seconds`. The thread then keeps the client until the process ends.
    """
    future = start(function)
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # it has ended just now, or `function` raised the TimeoutError
            return future.result()
    message = f"the client did not {action} within {seconds:g} s"
    raise ClientStuckError(message, "end this process, which releases the client, and start it again")


def start(function: Callable[[], T]) -> Future[T]:
    """Call `function` in a daemon thread, for which the end of the process does not wait.

    After the main thread has ended, Python 3.12.0 to 3.12.2 start no thread (gh-113964), and later versions start none
    at the end of the interpreter. `function` is then called in this thread, without a time limit.
    """
    future: Future[T] = Future()
    arguments = (_run, function, future)
    try:
        Thread(target=copy_context().run, args=arguments, daemon=True, name="outbox-limited-call").start()
    except RuntimeError:
        if main_thread().is_alive():  # the process has too many threads, or too little memory
            raise
        _run(function, future)
    return future


def _run(function: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # raised again in the calling thread
        future.set_exception(error)
