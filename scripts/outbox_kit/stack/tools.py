"""Runs the one-off tools of the parts: initdb, Kafka's storage tool, supervisord on its way to a daemon."""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outbox_kit.errors import StackError

OUTPUT_CHARACTERS = 2000


def run_tool(
    what: str,
    command: tuple[str, ...],
    *,
    seconds: float,
    folder: Path,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command to its end, as another user if one is named.

    In a session of its own: Ctrl-C is for the caller, who cleans up. StackError, with the end of what it
    printed, when it fails, cannot be run or takes longer than `seconds`.
    """
    entry = pwd.getpwnam(user) if user else None
    try:
        done = subprocess.run(
            command,
            user=entry.pw_uid if entry else None,
            group=entry.pw_gid if entry else None,
            extra_groups=[] if entry else None,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{what} did not end within {seconds:g} s"
        raise StackError(message) from None
    except OSError as error:
        message = f"{what} could not be run ({command[0]}: {error.strerror})"
        raise StackError(message) from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-OUTPUT_CHARACTERS:]
        message = f"{what} failed (exit status {done.returncode}):\n{output}"
        raise StackError(message)
