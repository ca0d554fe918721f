"""What the three JVM parts have in common: the command line, properties files, logging."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outbox_kit.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import mark
from outbox_kit.stack.services.service import Context

# To stdout, so that Supervisor captures and rotates it like every other log.
LOG4J = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.name = stdout
appender.stdout.type = Console
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %m (%c)%n%ex
"""


def jvm_command(
    context: Context, part: str, *, heap: str, options: tuple[str, ...] = (), run: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the command line of a JVM that carries the part's mark; `run` is what follows the options."""
    if context.java is None:
        message = f"{part} needs Java, and none was looked for"
        raise StackError(message)
    return (
        str(context.java),
        f"-D{mark(context.layout, part)}",
        f"-Xmx{heap}",
        # Supervisor starts it again; a JVM that limps on after it ran out of memory helps nobody.
        "-XX:+ExitOnOutOfMemoryError",
        # Before Java 18 the default charset follows the locale, which is often ASCII where CI runs.
        "-Dfile.encoding=UTF-8",
        "-Djava.awt.headless=true",
        *options,
        *run,
    )


def kafka_class_path(layout: Layout) -> str:
    """Return the class path of the broker and the worker; StackError when `make setup` has not run."""
    libraries = layout.runtime / "kafka" / "libs"
    # Connect's log levels are changed in log4j-core; without log4j-slf4j-impl nothing is logged.
    for jar in ("kafka-server", "connect-runtime", "log4j-core", "log4j-slf4j-impl"):
        if not any(libraries.glob(f"{jar}-[0-9]*.jar")):
            message = f"{libraries} does not hold {jar}"
            raise StackError(message, "run `make setup`")
    return str(libraries / "*")


def logging_options(layout: Layout) -> tuple[str, ...]:
    """Return the option that makes Log4j log to stdout, and write the file it names."""
    file = layout.configuration / "log4j2.properties"
    file.write_text(LOG4J)
    return (f"-Dlog4j2.configurationFile={file.as_uri()}",)


def write_properties(path: Path, values: Mapping[str, str | int | bool]) -> None:
    """Write a Java properties file, readable by its owner only."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(render_properties(values))


def render_properties(values: Mapping[str, str | int | bool]) -> str:
    """Render a Java properties file in the order given."""
    return "".join(f"{key}={escape(value)}\n" for key, value in values.items())


def escape(value: str | int | bool) -> str:
    r"""Render one value: booleans as Java writes them, backslashes and line ends escaped."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    # Leading blanks would be skipped by the reader.
    return "\\" + text if text.startswith((" ", "\t")) else text
