"""Fill the disk of the broker. The broker's log folder is on a small tmpfs, which the fault fills.

After ENOSPC, the broker's only log folder is offline, so the broker exits. A tmpfs can be mounted only by root on
Linux.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import health_checks
from outbox_kit.stack.processes import find_processes
from outbox_lab.drill.faults.fault import NotApplicableError
from outbox_lab.drill.stack import DrillStack

FREE_BYTES = 64 * 1024 * 1024
MOUNT_S = 10
FULL_S = 5
END_S = 60
START_S = 60
CHUNKS = (1024 * 1024, 4096, 1)
LOG_FOLDER = "log.dirs"


@contextmanager
def small_disk(drill: DrillStack) -> Iterator[None]:
    """Keep the broker's log folder on a tmpfs during a `with` block. Raises NotApplicableError if mounting fails."""
    disk, folder = _disk(drill), drill.stack.layout.data / "kafka"
    mount_tmpfs(disk, _used_bytes(folder) + FREE_BYTES)
    try:
        _move_log_folder(drill, folder, disk / "kafka")
        try:
            yield
        finally:
            (disk / "filler").unlink(missing_ok=True)
            _move_log_folder(drill, disk / "kafka", folder)
    finally:
        _unmount(disk)


def fill(drill: DrillStack) -> None:
    """Fill the disk until the broker exits. After FULL_S, free the disk and start the broker."""
    filler, kafka = _disk(drill) / "filler", drill.services["kafka"]
    brokers = {process.pid for process in find_processes(drill.stack.layout, ("kafka",))}
    try:
        _write_until_full(filler)
        _wait_until_ended(drill, brokers)
        time.sleep(FULL_S)  # meanwhile, Supervisor tries to restart the broker, which fails on a full disk
        kafka.stop()
    finally:
        filler.unlink()
    kafka.start()


def _disk(drill: DrillStack) -> Path:
    return drill.project.folder / "kafka-disk"


def mount_tmpfs(disk: Path, size: int) -> None:
    """Mount a tmpfs of `size` bytes. Raises NotApplicableError if the tmpfs cannot be mounted."""
    disk.mkdir(exist_ok=True)
    _unmount(disk)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=MOUNT_S, check=False)
        reason = result.stderr.strip() if result.returncode else ""
    except OSError as error:
        reason = f"mount: {error.strerror}"
    if reason:
        message = f"cannot simulate a full disk on this machine: {reason}"
        raise NotApplicableError(message, "run the drill as root on Linux, or exclude the fault with --fault")


def _unmount(disk: Path) -> None:
    if disk.is_mount():
        subprocess.run(["umount", str(disk)], capture_output=True, timeout=MOUNT_S, check=True)


def _move_log_folder(drill: DrillStack, source: Path, target: Path) -> None:
    """Stop the broker, copy its log folder, and start the broker with the copy."""
    kafka = drill.services["kafka"]
    kafka.stop()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    path = drill.stack.layout.configuration / "server.properties"
    lines = path.read_text().splitlines()
    changed = [f"{LOG_FOLDER}={target}" if line.startswith(f"{LOG_FOLDER}=") else line for line in lines]
    path.write_text("\n".join(changed) + "\n")
    kafka.start()
    port, servers = drill.state.ports["kafka"], drill.state.kafka
    wait_for("Kafka", lambda: health_checks.check_kafka(port, servers), seconds=START_S)


def _used_bytes(folder: Path) -> int:
    """Return the disk space that a folder uses. Do not add up file sizes, because index files are sparse."""
    used = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # the broker deletes old segments
            used += path.stat().st_blocks * 512
    return used


def _write_until_full(path: Path) -> None:
    """Write a file until the file system is full. Raises OSError for errors other than ENOSPC."""
    with path.open("wb", buffering=0) as file:
        for size in CHUNKS:
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        os.fsync(file.fileno())


def _wait_until_ended(drill: DrillStack, brokers: set[int]) -> None:
    def poll() -> Observation[bool]:
        running = brokers & {process.pid for process in find_processes(drill.stack.layout, ("kafka",))}
        return Observation(not running or None, "the broker is still running on a full disk")

    wait_for("the broker to end", poll, seconds=END_S, interval=0.1)
