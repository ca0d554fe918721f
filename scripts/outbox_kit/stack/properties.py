"""Settings of Kafka and Connect: as Java properties files, and as environment variables of container images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outbox_common.private_files import write_private

Settings = Mapping[str, str | int | bool]


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
