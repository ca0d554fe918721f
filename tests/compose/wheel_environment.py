"""A virtual environment with only the wheels of `make dist`, and the commands that run in it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.compose.compose_stack import REPOSITORY
from tests.integration.support import run

PIP_INSTALL = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
DEVELOPMENT = REPOSITORY / "requirements" / "development.txt"
SCRIPT_SECONDS = 600


def run_or_fail(command: list[str], folder: Path = REPOSITORY) -> str:
    """Run the command, by default in the repository, and return its output. A failure of the command fails the test."""
    done = run(command, folder)
    assert done.code == 0, done.output
    return done.stdout


def versions_of(requirements: Path, folder: Path) -> str:
    """Write the versions without the hashes, which pip would also require of our wheels. Return the path."""
    pins = re.findall(r"^[a-z].*==[^\\\n]*", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    file = folder / "versions.txt"
    file.write_text("\n".join(pins), encoding="utf-8")
    return str(file)


def install_wheels(folder: Path, dist: Path) -> Path:
    """Create an environment with the wheels and their pinned requirements. Return its folder of commands."""
    wheels = [str(path) for path in sorted(dist.glob("*.whl"))]
    python = str(folder / "bin" / "python")
    requirements = str(next(dist.glob("outbox-kit-requirements-*.txt")))
    pip = [python, *PIP_INSTALL]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "--require-hashes", "-r", requirements],
        [*pip, "--no-deps", *wheels],
        [*pip, "--no-index", *wheels],  # fails if a package is missing
        [python, "-m", "pip", "check"],
    ):
        run_or_fail(command)
    return folder / "bin"


def add_extras(commands: Path, dist: Path, folder: Path) -> None:
    """Install the extra `stack`, and link this environment's PySpark, whose installation takes minutes."""
    python = str(commands / "python")
    wheel = next(dist.glob("outbox_kit-*.whl"))
    constraints = versions_of(DEVELOPMENT, folder)
    run_or_fail([python, *PIP_INSTALL, "-c", constraints, "--find-links", str(dist), f"{wheel}[stack]", "msgspec"])
    links = folder / "linked"
    links.mkdir()
    here, there = (site_packages(each) for each in (sys.executable, python))
    for package in ("pyspark", "py4j"):
        (links / package).symlink_to(here / package)
    (there / "linked.pth").write_text(f"{links}\n", encoding="utf-8")


def site_packages(python: str) -> Path:
    return Path(run_or_fail([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())


def run_script(script: str, folder: Path, commands: Path, cache: Path) -> str:
    """Run a script in bash with the commands of the environment, and return its output. A failure fails the test."""
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    log = cache / "output.txt"  # a pipe would stay open as long as a process of the script runs
    with log.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env={**environment, "PATH": path, "XDG_CACHE_HOME": str(cache)},
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = shell.wait(SCRIPT_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    assert code == 0, log.read_text()
    return log.read_text()
