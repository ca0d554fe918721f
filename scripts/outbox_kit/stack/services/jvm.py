"""Command line, logging and settings of the JVM services, embedded or in containers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outbox_common.private_files import write_private
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import process_marker
from outbox_kit.stack.services.service import Context

# Log to stdout, which Supervisor captures and rotates like every other log.
LOG4J_PROPERTIES = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.name = stdout
appender.stdout.type = Console
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %m (%c)%n%ex
"""
Settings = Mapping[str, str | int | bool]


def jvm_command(
    context: Context, service: str, *, heap: str, options: tuple[str, ...] = (), main: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the command line of a JVM with the service's process marker; `main` is the class or jar with arguments."""
    if context.java is None:
        raise StackError(f"{service} needs Java, and no Java was selected")
    return (
        str(context.java),
        f"-D{process_marker(context.layout, service)}",
        f"-Xmx{heap}",
        # After an OutOfMemoryError a JVM is unreliable. With this option it exits, and Supervisor restarts it.
        "-XX:+ExitOnOutOfMemoryError",
        # Before Java 18 the default charset follows the locale, which is often ASCII where CI runs.
        "-Dfile.encoding=UTF-8",
        "-Djava.awt.headless=true",
        *options,
        *main,
    )


def kafka_command(
    context: Context, service: str, *arguments: str, heap: str, options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the command line of a JVM on Kafka's class path; `arguments` are the main class and its arguments."""
    main = ("-cp", kafka_class_path(context.layout), *arguments)
    log4j = context.layout.configuration / "log4j2.properties"
    log4j.write_text(LOG4J_PROPERTIES)
    options = (*options, f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    return jvm_command(context, service, heap=heap, options=options, main=main)


def kafka_class_path(layout: Layout) -> str:
    """Return the class path of the broker and the worker. Raises StackError when `make setup` has not run."""
    libraries = layout.runtime / "kafka" / "libs"
    # Connect changes log levels through log4j-core; without log4j-slf4j-impl nothing is logged.
    for jar in ("kafka-server", "connect-runtime", "log4j-core", "log4j-slf4j-impl"):
        if not any(libraries.glob(f"{jar}-[0-9]*.jar")):
            raise StackError(f"{libraries} does not contain {jar}", "run `make setup`")
    return str(libraries / "*")


def write_properties(path: Path, settings: Settings) -> None:
    """Write a Java properties file that only its owner can read."""
    write_private(path, render_properties(settings))


def render_properties(settings: Settings) -> str:
    """Render a Java properties file in the order given; compose/images/properties.bash does the same in the images."""
    return "".join(f"{key}={_escape(_text(value))}\n" for key, value in settings.items())


def environment_variables(prefix: str, settings: Settings) -> dict[str, str]:
    """Return settings as variables of Kafka's official images: with the prefix KAFKA_ the setting a.b is KAFKA_A_B."""
    return {
        prefix + key.upper().replace("_", "__").replace("-", "___").replace(".", "_"): _text(value)
        for key, value in settings.items()
    }


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    # Java skips leading white space of a value unless it is escaped.
    return "\\" + text if text.startswith((" ", "\t")) else text
