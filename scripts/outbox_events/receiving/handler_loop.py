"""Call handlers, and run the coroutines of `async def` handlers on an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from traceback import StackSummary
from types import FrameType
from typing import Any, TypeVarTuple

import psycopg

from outbox_events.errors import ConfigurationError, RejectedError
from outbox_events.limited_calls import ClientStuckError
from outbox_events.receiving.function_bodies import never_run
from outbox_events.receiving.recoverers import ReceiverStoppedError
from outbox_events.receiving.retries import is_outage

CANCEL_S = 5.0
TASKS_HINT = "await all tasks in the handler, for example in an asyncio.TaskGroup"
ROLLBACK_HINT = "raise it inside `with connection.transaction():`, which undoes only the statements of that block"
Arguments = TypeVarTuple("Arguments")


class HandlerLoop:
    """Calls functions of the service, and runs the coroutines that they return, one after another.

    The event loop runs in the thread that calls `call`, and only during a call. It is kept between calls, so that a
    client of asyncio can keep its connections.
    """

    def __init__(self) -> None:
        # With a factory, the Runner does not set the event loop of the thread.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Call the function and, if it returns a coroutine, wait until the coroutine has ended.

        Raises one error of an ExceptionGroup instead of the group, so that the receiver can classify it.
        """
        try:
            result = function(*arguments)
            if result is not None:
                self._finish(result)
            return
        except BaseExceptionGroup as group:
            error = min(_errors(group), key=_rank)
        except (asyncio.CancelledError, psycopg.Rollback) as raised:
            error = raised
        if isinstance(error, asyncio.CancelledError):  # would look like a cancellation of the receiver
            raise RejectedError("a handler raised CancelledError") from error
        if isinstance(error, psycopg.Rollback):  # would end the receiver's transaction without an error
            raise RejectedError(
                "a handler raised psycopg.Rollback outside of its own savepoint", ROLLBACK_HINT
            ) from error
        raise error  # not in the `except` block, which would replace the context of the error

    def stacks(self) -> str:
        """Return the lines in which the tasks of the current call wait. Any thread can call this method."""
        tasks = set() if self._loop is None else asyncio.all_tasks(self._loop)
        return "".join({"".join(StackSummary.extract(_frames(task)).format()) for task in tasks})

    def close(self) -> None:
        """Close the event loop. Does not wait for threads that handlers have started."""
        if self._loop is not None:
            self._loop.close()

    def _finish(self, result: object) -> None:
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise never_run(result)
        if isinstance(result, Future):
            raise ConfigurationError("a handler returned a Future before it was done", "await asyncio.wrap_future(...)")
        if inspect.isawaitable(result):
            self._run(result)

    def _run(self, result: Awaitable[object]) -> None:
        if asyncio._get_running_loop() is not None:
            if inspect.iscoroutine(result):
                result.close()
            message = "the receiver was called on a running event loop, so an `async def` handler cannot run"
            raise ConfigurationError(message, "call the receiver in a thread: await asyncio.to_thread(...)")
        self._loop = self._runner.get_loop()
        self._runner.run(_without_tasks_left(result), context=copy_context())  # which contains the current span


async def _without_tasks_left(result: Awaitable[object]) -> None:
    """Await the result, and cancel the tasks that it left, because they would run in a transaction of later events.

    Raises ConfigurationError if there were such tasks, because their effects are not complete, and
    ReceiverStoppedError if a task has not ended CANCEL_S after it was cancelled.
    """
    try:
        await result
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        running = (await asyncio.wait(left, timeout=CANCEL_S))[1] if left else set()
        if running:
            raise ReceiverStoppedError(f"tasks of a handler ignore their cancellation: {_names(running)}", TASKS_HINT)
    if left:
        raise ConfigurationError(f"a handler ended before its tasks: {_names(left)}", TASKS_HINT)


def _names(tasks: Iterable[asyncio.Task[Any]]) -> str:
    return ", ".join(sorted(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in tasks))


def _errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _errors(inner)
    else:
        yield error


def _rank(error: BaseException) -> int:
    """Return 0 for errors that stop the receiver, 1 for outages, and 2 for errors that the event can have caused."""
    return 0 if isinstance(error, ReceiverStoppedError | ClientStuckError) else 1 if is_outage(error) else 2


def _frames(task: asyncio.Task[Any]) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a waiting task, of which `Task.get_stack` returns only the first."""
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        waiting = waiting.cr_await
