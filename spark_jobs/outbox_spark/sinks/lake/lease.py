"""Lease a table in a folder to one run. A file next to the table contains the holder and the expiry time of the lease.

Hadoop's FileSystem creates the file without overwriting, so leases work in every store that can contain tables. A lease
only avoids wasted work. It is not reliable, because clocks differ and not every object store rejects overwriting.
Correctness depends on the conflict detection of commits. Targets without conflict detection are refused, unless they
have a single writer (single_writer.py).
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from outbox_events.errors import UnreachableError
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import Reporter
from outbox_spark.session.error_redaction import storage_error
from outbox_spark.session.run_session import hadoop_configuration

LEASE_SUFFIX = "__lease"
LEASE_SECONDS = 60.0
"""Time after which a lease expires unless it is renewed. The holder renews its lease three times within this time."""


@dataclass(frozen=True)
class LeaseHolder:
    """Content of the lease file. `until` is the expiry time in seconds since 1970, by the holder's clock."""

    token: str
    host: str
    pid: int
    until: float
    pid_namespace: int | None = None
    """Inode of the PID namespace of `pid`; None on systems without PID namespaces."""

    def __str__(self) -> str:
        until = datetime.fromtimestamp(self.until, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host}, until {until}"

    def has_ended(self, now: float) -> bool:
        """Return whether the lease has expired, or its holder was a process on this machine that no longer exists."""
        if self.until <= now:
            return True
        # Containers can have the same host name, but each has its own PID namespace.
        if (self.host, self.pid_namespace) != (socket.gethostname(), _pid_namespace()):
            return False
        try:
            os.kill(self.pid, 0)
        except OSError as error:  # any other error means that the process belongs to another user
            return isinstance(error, ProcessLookupError)
        return False


class Lease:
    """Lease of one run. A thread renews the lease from `acquire` to `release`."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        report: Reporter,
        *,
        seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._configuration = hadoop_configuration(spark)
        self.path, self._report, self._seconds, self._clock = path, report, seconds, clock
        self._file: Any = jvm.org.apache.hadoop.fs.Path(path)
        self._token = secrets.token_hex(8)
        self._lost_to: str | None = None
        self.written_at: datetime | None = None
        """Time at which the file was last written, by the store's clock; None before `acquire`."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Acquire the lease.

        Raises OverlapError if another run holds the lease, RefusedError if a disk is full, and UnreachableError if the
        file cannot be written for another reason.
        """
        try:
            if not self._create():
                self._take_over()
        except Py4JJavaError as error:
            if failure := storage_error(error):
                raise failure from error
            error_name = error.java_exception.getClass().getSimpleName()
            message = f"{self.path} cannot be written: {error_name}"
            raise UnreachableError(message, "check the target's path, and whether this user may write to it") from error
        self._lost_to = None
        self._stopped.clear()
        self._thread = threading.Thread(target=self._renew_until_stopped, name="outbox-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Stop renewing, and delete the file if this run wrote it. Errors are ignored, because the lease expires."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(self._seconds)
            self._thread = None
        with suppress(Exception):
            holder = self._read(self._file)
            if holder is not None and holder.token == self._token:
                self._file_system().delete(self._file, False)

    def check(self) -> None:
        """Raise OverlapError if another run took the lease over because this run did not renew it before it expired."""
        if self._lost_to is not None:
            message = f"the lease {self.path} was taken over by {self._lost_to}, because this run did not renew it"
            raise OverlapError(message, "run the command again when the other run has ended")

    def renew(self) -> bool:
        """Renew the lease and return True, or return False if another run has taken it over."""
        holder = self._read(self._file)
        if holder is not None and holder.token != self._token:
            self._lost_to = str(holder)
            return False
        self._write(overwrite=True)
        return True

    def _renew_until_stopped(self) -> None:
        while not self._stopped.wait(self._seconds / 3):
            with suppress(Exception):  # a renewal may fail, for example while the store is unavailable
                if not self.renew():
                    return

    def _create(self) -> bool:
        try:
            self._write(overwrite=False)
        except Py4JJavaError as error:
            java_error = error.java_exception
            # Hadoop also raises FileAlreadyExistsException if the path of the folder is a file.
            parent_is_file = "not a directory" in str(java_error.getMessage())
            if parent_is_file or "AlreadyExists" not in java_error.getClass().getName():
                raise
            return False
        # If the store overwrites the file despite overwrite=False, the last writer holds the lease.
        holder = self._read(self._file)
        return holder is not None and holder.token == self._token

    def _take_over(self) -> None:
        holder = self._read(self._file)
        if holder is not None and not holder.has_ended(self._clock()):
            raise self._overlap_error(holder)
        if holder is not None:
            self._remove_ended(holder)
            self._report(f"took over the lease {self.path} of a run that has ended: {holder}")
        if not self._create():
            raise self._overlap_error(self._read(self._file))

    def _remove_ended(self, ended_holder: LeaseHolder) -> None:
        """Remove the file of an ended lease. Rename the file first, to detect whether another run just replaced it."""
        file_system = self._file_system()
        renamed_file = self._jvm.org.apache.hadoop.fs.Path(f"{self.path}.{self._token}")
        if not file_system.rename(self._file, renamed_file):
            return
        holder = self._read(renamed_file)
        if holder is not None and holder.token != ended_holder.token:
            file_system.rename(renamed_file, self._file)
            raise self._overlap_error(holder)
        file_system.delete(renamed_file, False)

    def _overlap_error(self, holder: LeaseHolder | None) -> OverlapError:
        message = f"another run holds the lease {self.path}: {holder or 'it has just started'}"
        hint = f"wait until that run ends; if it was killed, wait {self._seconds:g} s until its lease expires"
        return OverlapError(message, hint)

    def _write(self, *, overwrite: bool) -> None:
        holder = LeaseHolder(
            self._token, socket.gethostname(), os.getpid(), self._clock() + self._seconds, _pid_namespace()
        )
        stream = self._file_system().create(self._file, overwrite)
        try:
            with closing(stream):
                stream.write(bytearray(json.dumps(asdict(holder)).encode()))
        except Py4JJavaError:
            if not overwrite:  # an incomplete file would count as the lease of another run
                self._file_system().delete(self._file, False)
            raise
        modified_at = self._file_system().getFileStatus(self._file).getModificationTime()
        self.written_at = datetime.fromtimestamp(modified_at / 1000, UTC)

    def _read(self, path: Any) -> LeaseHolder | None:  # noqa: ANN401 - org.apache.hadoop.fs.Path
        """Return the holder, or None. An incomplete file counts as a lease that began when the file was written."""
        file_system = self._file_system()
        try:
            status = file_system.getFileStatus(path)
        except Py4JJavaError:
            return None
        try:
            with closing(file_system.open(path)) as stream:
                return LeaseHolder(**json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
        except (Py4JJavaError, ValueError, TypeError):
            return LeaseHolder("", "an unknown host", 0, status.getModificationTime() / 1000 + self._seconds)

    def _file_system(self) -> Any:  # noqa: ANN401 - org.apache.hadoop.fs.FileSystem
        return self._file.getFileSystem(self._configuration)


def _pid_namespace() -> int | None:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
