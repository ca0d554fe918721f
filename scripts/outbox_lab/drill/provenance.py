"""Name the commit and the machine with which results were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

GIT_TIMEOUT_S = 30
DESCRIBE = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def commit_of(folder: Path) -> str:
    """Return the abbreviated commit, followed by `-dirty` if tracked files were changed, or '' outside a checkout."""
    try:
        done = subprocess.run(DESCRIBE, cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def machine() -> str:
    """Return the system, the architecture, the number of processors and the size of the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, {memory:.0f} GiB"
