"""Records which signals arrive, even if a library replaces their handlers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def recorded_signals() -> Iterator[Callable[[int], bool]]:
    """Yield a function that returns whether a signal was handled during the block. Main thread only."""
    descriptors = os.pipe()
    for descriptor in descriptors:
        os.set_blocking(descriptor, False)
    with os.fdopen(descriptors[0], "rb", 0) as reader, os.fdopen(descriptors[1], "wb", 0) as writer:
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        numbers = bytearray()

        def was_received(signum: int) -> bool:
            numbers.extend(reader.read() or b"")
            return signum in numbers

        try:
            yield was_received
        finally:
            signal.set_wakeup_fd(previous)
