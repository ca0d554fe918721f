"""Run commands that end by themselves, such as initdb and Kafka's storage tool."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outbox_kit.stack.errors import StackError

MAX_OUTPUT_CHARACTERS = 2000
# Environment variables that tools and services inherit. Others are not passed on, because CLASSPATH, PGOPTIONS or
# QUARKUS_... would change the settings of a tool or service, and some contain secrets.
INHERITED_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")


def run_tool(
    name: str,
    command: tuple[str, ...],
    *,
    seconds: float,
    folder: Path,
    user: str | None = None,
) -> None:
    """Run a command as `user` or as the caller, and wait until it ends. It inherits only INHERITED_NAMES.

    The command runs in its own session, so that only the caller receives Ctrl-C and can clean up. Raises StackError if
    the command cannot be run, takes longer than `seconds`, or fails. If it fails, the error includes its output.
    """
    account = pwd.getpwnam(user) if user else None
    try:
        result = subprocess.run(
            command,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            env=inherited_environment(os.environ),
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
        raise StackError(f"{name} did not end within {seconds:g} s") from None
    except OSError as error:
        raise StackError(f"cannot run {name} ({command[0]}: {error.strerror})") from error
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip()[-MAX_OUTPUT_CHARACTERS:]
        raise StackError(f"{name} failed (exit status {result.returncode}):\n{output}")


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the subset of the caller's environment variables that tools and services inherit."""
    return {name: environment[name] for name in INHERITED_NAMES if name in environment}
