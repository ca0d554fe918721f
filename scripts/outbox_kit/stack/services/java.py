"""Find a Java version that Kafka, Connect, the registry and Spark support."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from outbox_events.errors import ConfigurationError

# The registry and the transforms are built for Java 17. Spark 4.1 is tested on Java 17 and 21 only.
SUPPORTED_VERSIONS = (17, 21)
JAVA_LOCATIONS = (
    "/usr/lib/jvm/*17*/bin/java",
    "/usr/lib/jvm/*21*/bin/java",
    "/opt/homebrew/opt/openjdk@17/bin/java",
    "/opt/homebrew/opt/openjdk@21/bin/java",
    "/usr/local/opt/openjdk@17/bin/java",
    "/usr/local/opt/openjdk@21/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)
INSTALL_HINTS = {
    "linux": "run `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME",
    "darwin": "run `brew install openjdk@17`, or set JAVA_HOME",
}
VERSION = re.compile(r'version "(?:1\.)?(\d+)')

SPARK_TIMEOUT_S = 300
# In a JVM that processes little data, the optimizing compiler costs more time than it saves.
FAST_START_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def parse_version(text: str) -> int | None:
    """Return the major version from the output of `java -version`, or None if the output contains no version."""
    match = VERSION.search(text)
    return int(match.group(1)) if match else None


def java_version(java: Path) -> int | None:
    """Return the major version of a java executable, or None if it fails, as macOS' placeholder `java` does."""
    try:
        result = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(result.stderr + result.stdout) if result.returncode == 0 else None


def java_candidates() -> Iterator[Path]:
    """Yield java executables in order of preference: from JAVA_HOME, PATH and the usual folders."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        yield Path(java_home) / "bin" / "java"
    java_on_path = shutil.which("java")
    if java_on_path:
        yield Path(java_on_path)
    for pattern in JAVA_LOCATIONS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))


def find_java() -> Path:
    """Return the first `java` executable with a supported version. Raises ConfigurationError if none is found.

    A JAVA_HOME with an unsupported version is skipped without an error, because other programs can need it.
    """
    rejection_reasons: dict[Path, str] = {}
    for java in java_candidates():
        if java.resolve() in rejection_reasons or not java.exists():
            continue
        version = java_version(java)
        if version in SUPPORTED_VERSIONS:
            return java
        rejection_reasons[java.resolve()] = f"{java} is {'unusable' if version is None else f'version {version}'}"
    supported = " or ".join(map(str, SUPPORTED_VERSIONS))
    reason = "; ".join(rejection_reasons.values()) or "no java was found in JAVA_HOME, on PATH or in the usual folders"
    message = f"Java {supported} is required: {reason}"
    raise ConfigurationError(message, INSTALL_HINTS.get(sys.platform, INSTALL_HINTS["linux"]))


def job_command(pipeline_file: Path, environment: str, *options: str) -> list[str]:
    """Return the command that materializes the topics of a pipeline."""
    return [sys.executable, "-m", "outbox_spark", "-p", str(pipeline_file), "-e", environment, *options]


def job_environment() -> dict[str, str]:
    """Return the environment variables for the command. Raises ConfigurationError if Java is not found."""
    java_home = find_java().resolve().parent.parent
    return {"SPARK_SUBMIT_OPTS": FAST_START_OPTIONS, **os.environ, "JAVA_HOME": str(java_home)}
