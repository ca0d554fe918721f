"""Build command lines, logging and settings for the JVM services, which run embedded or in containers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outbox_common.private_files import write_private
from outbox_kit.stack.errors import StackError, setup_hint
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import process_marker
from outbox_kit.stack.services.service import Context

# The JVM services log to stdout. Supervisor captures and rotates stdout, as it does for every other service.
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
    """Return the command line of a service's JVM. `main` is the main class or jar, followed by its arguments."""
    if context.java is None:
        raise StackError(f"{service} needs Java, but Java was not selected")
    return (
        str(context.java),
        f"-D{process_marker(context.layout, service)}",
        f"-Xmx{heap}",
        # A JVM is unreliable after an OutOfMemoryError. With this option, it exits and Supervisor restarts it.
        "-XX:+ExitOnOutOfMemoryError",
        # Before Java 18, the default charset depends on the locale, which is often ASCII on CI machines.
        "-Dfile.encoding=UTF-8",
        "-Djava.awt.headless=true",
        *options,
        *context.options.jvm_options.split(),
        *main,
    )


def kafka_command(
    context: Context, service: str, *arguments: str, heap: str, options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the command line of a JVM with Kafka's class path. `arguments` begins with the main class."""
    main = ("-cp", kafka_class_path(context.layout), *arguments)
    log4j = context.layout.configuration / "log4j2.properties"
    log4j.write_text(LOG4J_PROPERTIES)
    options = (*options, f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    return jvm_command(context, service, heap=heap, options=options, main=main)


def kafka_class_path(layout: Layout) -> str:
    """Return the class path of the broker and the worker. Raises StackError if `make setup` has not been run."""
    libraries = layout.runtime / "kafka" / "libs"
    # Connect uses log4j-core to change log levels. Without log4j-slf4j-impl, nothing is logged.
    for jar in ("kafka-server", "connect-runtime", "log4j-core", "log4j-slf4j-impl"):
        if not any(libraries.glob(f"{jar}-[0-9]*.jar")):
            raise StackError(f"{libraries} does not contain {jar}", setup_hint())
    return str(libraries / "*")


def write_properties(path: Path, settings: Settings) -> None:
    """Write a Java properties file that only its owner can read."""
    write_private(path, render_properties(settings))


def render_properties(settings: Settings) -> str:
    """Render a Java properties file in the given order, as compose/images/properties.bash does in the images."""
    return "".join(f"{key}={_escape(_text(value))}\n" for key, value in settings.items())


def environment_variables(prefix: str, settings: Settings) -> dict[str, str]:
    """Return settings as environment variables for Kafka's official images: a.b becomes KAFKA_A_B (prefix KAFKA_)."""
    return {
        prefix + key.upper().replace("_", "__").replace("-", "___").replace(".", "_"): _text(value)
        for key, value in settings.items()
    }


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    # Java skips leading white space in a value unless it is escaped.
    return "\\" + text if text.startswith((" ", "\t")) else text
