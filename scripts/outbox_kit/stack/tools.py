"""Execution of commands until they end: initdb, Kafka's storage tool, the launch of supervisord."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outbox_kit.stack.errors import StackError

MAX_OUTPUT_CHARACTERS = 2000
# Variables that tools and services inherit. CLASSPATH, PGOPTIONS or QUARKUS_... of the caller would change their
# settings, and other variables can contain secrets.
INHERITED_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")


def run_tool(
    name: str,
    command: tuple[str, ...],
    *,
    seconds: float,
    folder: Path,
    user: str | None = None,
) -> None:
    """Run a command, as `user` or as the caller, with the inherited variables only, and wait until it ends.

    The command runs in its own session, so that Ctrl-C reaches only the caller, which cleans up. Raises StackError,
    with the end of the output, when it fails, cannot be run or takes longer than `seconds`.
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
    """Return the variables of the caller that tools and services inherit."""
    return {name: environment[name] for name in INHERITED_NAMES if name in environment}
