"""One run per table, for targets that are folders: a small file beside the table says who has it, and until when.

The file is made with the Hadoop FileSystem's create that refuses to overwrite, so it works wherever the tables do.
It saves a second run the work. That the tables stay right does not rest on it: clocks differ, and not every object
store refuses to overwrite. For that there is the conflict detection of the commits.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from outbox_spark.commands.options import tell
from outbox_spark.errors import OverlapError, UnreachableError
from outbox_spark.jobs.model import Progress

LEASE_SUFFIX = "__lease"
LEASE_SECONDS = 60.0
"""How long a lease lasts when its holder no longer renews it. Renewed three times in that time."""


@dataclass(frozen=True)
class Holder:
    """What the file holds. `until` is in seconds since 1970, by the holder's clock."""

    token: str
    host: str
    pid: int
    until: float
    pid_namespace: int | None = None
    """What `pid` counts in; None on systems that have none, and in files of before it was written."""

    def __str__(self) -> str:
        until = datetime.fromtimestamp(self.until, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host}, until {until}"

    def is_dead(self, now: float) -> bool:
        """Whether it stopped renewing; a process of this very machine that is gone is not waited for."""
        if self.until <= now:
            return True
        # Containers can share a host name, and each counts its processes by itself.
        if (self.host, self.pid_namespace) != (socket.gethostname(), _pid_namespace()):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it is there, and somebody else's
            return False
        return False


class Lease:
    """Held from `acquire` to `release`; renewed by a thread of its own meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
        tell: Progress = tell,
    ) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._configuration: Any = spark._jsc.hadoopConfiguration()
        self._text, self._seconds, self._clock, self._tell = path, seconds, clock, tell
        self._path: Any = jvm.org.apache.hadoop.fs.Path(path)
        self._token = secrets.token_hex(8)
        self._lost_to: str | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Raises OverlapError when another run holds it, UnreachableError when the folder cannot be written."""
        try:
            if not self._create():
                self._take_over()
        except Py4JJavaError as error:
            name = error.java_exception.getClass().getSimpleName()
            message = f"{self._text} cannot be written: {name}"
            raise UnreachableError(message, "check the target's path, and who may write there") from error
        self._lost_to = None
        self._stopped.clear()
        self._thread = threading.Thread(target=self._keep, name="outbox-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let go of it. Never raises: the lease ends by itself."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(self._seconds)
            self._thread = None
        with suppress(Exception):
            holder = self._read()
            if holder is not None and holder.token == self._token:
                self._files().delete(self._path, False)

    def check(self) -> None:
        """Raise OverlapError when somebody else took it: this run did not renew it in time."""
        if self._lost_to is not None:
            message = f"the lease {self._text} was taken over by {self._lost_to}: this run stood still for too long"
            raise OverlapError(message, "nothing is lost; run again")

    def renew(self) -> bool:
        """Once; False when it is not ours any more."""
        holder = self._read()
        if holder is not None and holder.token != self._token:
            self._lost_to = str(holder)
            return False
        self._write(overwrite=True)
        return True

    def _keep(self) -> None:
        while not self._stopped.wait(self._seconds / 3):
            with suppress(Exception):  # a store that is away for a moment; the next time may do
                if not self.renew():
                    return

    def _create(self) -> bool:
        try:
            self._write(overwrite=False)
        except Py4JJavaError as error:
            raised = error.java_exception
            # Hadoop says the same of a folder whose name is taken by a file.
            folder = "not a directory" in str(raised.getMessage())
            if folder or "AlreadyExists" not in raised.getClass().getName():
                raise
            return False
        # Where "create" does not refuse to overwrite, the last one to write has it.
        holder = self._read()
        return holder is not None and holder.token == self._token

    def _take_over(self) -> None:
        holder = self._read()
        if holder is not None and not holder.is_dead(self._clock()):
            self._refuse(holder)
        if holder is not None:
            self._set_aside(holder)
            self._tell(f"took over {self._text} from a run that is dead: {holder}")
        if not self._create():
            self._refuse(self._read())

    def _set_aside(self, dead: Holder) -> None:
        """Rename, then look: of two runs that take over at once one must not remove the other's new lease."""
        files, aside = self._files(), self._jvm.org.apache.hadoop.fs.Path(f"{self._text}.{self._token}")
        if not files.rename(self._path, aside):
            return
        found = self._read(aside)
        if found is not None and found.token != dead.token:
            files.rename(aside, self._path)
            self._refuse(found)
        files.delete(aside, False)

    def _refuse(self, holder: Holder | None) -> None:
        message = f"another run holds {self._text}: {holder or 'it has just begun'}"
        raise OverlapError(message, "wait for it; if it was killed, its lease ends by itself")

    def _write(self, *, overwrite: bool) -> None:
        holder = Holder(self._token, socket.gethostname(), os.getpid(), self._clock() + self._seconds, _pid_namespace())
        stream = self._files().create(self._path, overwrite)
        try:
            stream.write(bytearray(json.dumps(asdict(holder)).encode()))
        finally:
            stream.close()

    def _read(self, path: Any = None) -> Holder | None:  # noqa: ANN401 - of Hadoop
        """None when there is none. One that is just being written counts from the file's time."""
        files, path = self._files(), path or self._path
        try:
            status = files.getFileStatus(path)
        except Py4JJavaError:
            return None
        try:
            stream = files.open(path)
            try:
                return Holder(**json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
            finally:
                stream.close()
        except (Py4JJavaError, ValueError, TypeError):
            return Holder("", "an unknown host", 0, status.getModificationTime() / 1000 + self._seconds)

    def _files(self) -> Any:  # noqa: ANN401 - of Hadoop
        return self._path.getFileSystem(self._configuration)


def _pid_namespace() -> int | None:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
