"""Call functions with one worker in this thread, or with several workers in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar

K = TypeVar("K")
R = TypeVar("R")
W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)


class Workers(Protocol[W_co]):
    """Calls functions with workers."""

    def call(self, functions: Mapping[K, Callable[[W_co], R]]) -> Iterator[tuple[K, Callable[[], R]]]:
        """Yield a function that returns the result of each call, or raises its error, in the order of completion.

        After a stop was requested, no other function is called.
        """


class SingleWorker(Generic[W]):
    """One worker, with which each function is called when the thread that iterates requests its result."""

    def __init__(self, worker: W, stop: threading.Event) -> None:
        self._worker = worker
        self._stop = stop

    def call(self, functions: Mapping[K, Callable[[W], R]]) -> Iterator[tuple[K, Callable[[], R]]]:
        """Yield each function, bound to the worker, until a stop is requested."""
        for key, function in functions.items():
            if self._stop.is_set():
                return
            yield key, partial(function, self._worker)


class WorkerThreads(Generic[W]):
    """Threads, each of which opens a worker for its first function and closes it at the end of the `with` block.

    The threads are daemons, so that the process can end while they work. An exception in the block requests a stop, and
    is raised without waiting for them.
    """

    def __init__(self, count: int, open_worker: Callable[[], AbstractContextManager[W]], stop: threading.Event) -> None:
        self._open_worker = open_worker
        self._stop = stop
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[W], Any]] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"outbox-worker-{number}", daemon=True)
            for number in range(1, count + 1)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop.set()
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads if kind is None else ():
            thread.join()

    def call(self, functions: Mapping[K, Callable[[W], R]]) -> Iterator[tuple[K, Callable[[], R]]]:
        """Call all functions, and yield the results."""
        futures: dict[Future[R], K] = {Future(): key for key in functions}
        for future, key in futures.items():
            self._tasks.put((future, functions[key]))
        for future in as_completed(futures):
            if not future.cancelled():
                yield futures[future], future.result

    def _work(self) -> None:
        with ExitStack() as stack:
            worker: W | None = None
            while (task := self._tasks.get()) is not None:
                future, function = task
                if self._stop.is_set():
                    future.cancel()
                    future.set_running_or_notify_cancel()
                    continue
                try:
                    worker = worker or stack.enter_context(self._open_worker())
                    future.set_result(function(worker))
                except BaseException as error:
                    future.set_exception(error)
