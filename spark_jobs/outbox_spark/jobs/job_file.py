"""Read and write job files. A driver with a job file needs neither the pipeline file nor the packages of `outbox`.

    {"version": 1, "jobs": [{"aggregate": ..., "topic": ..., "table": ..., "kafka": {...}, "registry": {...},
                             "target_name": ..., "target": {"kind": "postgres", ...}, "options": {...}}]}

The keys of a job are the fields of model.MaterializeJob; durations are in seconds. A string may contain `${env:NAME}`,
which a command replaces at start with the value of that variable, so that the file does not contain secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from outbox_common.pipeline_files import UsageError
from outbox_events.errors import ConfigurationError
from outbox_events.http_session import HttpEndpoint
from outbox_spark.jobs.model import JobSettings, MaterializeJob, MaterializeOptions, Target

VERSION = 1
"""Version of the file format; incremented when older files can no longer be read."""
REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_WRITE_AGAIN = "write the file again with `outbox-materialize --write-job`"

S = TypeVar("S", bound=JobSettings)
T = TypeVar("T")


class JobFile(JobSettings, frozen=True):
    """Content of a job file."""

    version: int
    jobs: list[dict[str, Any]]
    """Fields of MaterializeJob. They are validated only for selected jobs, so an invalid job does not affect others."""


_KEYS: Mapping[str, Sequence[Collection[str]]] = {
    "": [JobFile.__struct_fields__],
    "jobs": [MaterializeJob.__struct_fields__],
    "registry": [HttpEndpoint.__dataclass_fields__],
    "options": [MaterializeOptions.__struct_fields__],
    "target": [target.__struct_fields__ for target in get_args(Target)],
}
"""Maps a key of the file to the keys allowed inside its value, with one collection for each possible class."""
_CHOICES_BY_KEY: Mapping[str, Collection[str]] = {
    "kind": [str(target.__struct_config__.tag) for target in get_args(Target)],
    **{
        option.name: list(option.type)
        for option in msgspec.structs.fields(MaterializeOptions)
        if isinstance(option.type, type) and issubclass(option.type, StrEnum)
    },
}


def reference(variable: str) -> str:
    """Return the text by which a job file refers to an environment variable."""
    return f"${{env:{variable}}}"


def as_text(jobs: Sequence[MaterializeJob]) -> str:
    """Return the text of a job file. All values are written unchanged, so secrets must be references."""
    encoded = msgspec.json.encode(JobFile(VERSION, [msgspec.to_builtins(job) for job in jobs]))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def variables(text: str) -> list[str]:
    """Return the sorted names of the environment variables that a job file refers to."""
    return sorted(set(REFERENCE.findall(text)))


def read_jobs(
    path: Path,
    environ: Mapping[str, str] | None = None,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
) -> list[MaterializeJob]:
    """Return the selected jobs in a file, in file order. An empty collection selects all.

    Raises ConfigurationError if the file is unreadable or has an unsupported version, if no job is selected, or if a
    selected job has an unknown key, a missing key, a value of the wrong type or a variable that is not set.
    """

    def names_of(item: tuple[int, Mapping[str, Any]]) -> tuple[str, str]:
        return str(item[1].get("aggregate", "?")), str(item[1].get("target_name", "?"))

    entries = select(enumerate(_read(path).jobs), names_of, aggregates, targets, path)
    jobs = [_convert(entry, MaterializeJob, path, f".jobs[{index}]") for index, entry in entries]
    environ = os.environ if environ is None else environ
    missing = [name for name in variables(as_text(jobs)) if not environ.get(name)]
    if missing:
        message = f"{path}: environment variables are not set: {', '.join(missing)}"
        hint = f"set the variables: export {' '.join(f'{name}=...' for name in missing)}"
        raise ConfigurationError(message, hint)
    return [msgspec.convert(_with_variables(msgspec.to_builtins(job), environ), MaterializeJob) for job in jobs]


def select(
    entries: Iterable[T],
    names_of: Callable[[T], tuple[str, str]],
    aggregates: Collection[str],
    targets: Collection[str],
    path: Path,
) -> list[T]:
    """Return the entries whose aggregate and target (`names_of`) are in the collections. Empty collections select all.

    Raises UsageError if a name is unknown or no entry is selected, and ConfigurationError if there are no entries.
    """
    named = [(entry, *names_of(entry)) for entry in entries]
    selected = [
        entry
        for entry, aggregate, target in named
        if (not aggregates or aggregate in aggregates) and (not targets or target in targets)
    ]
    unknown = {*aggregates, *targets} - {name for _, *names in named for name in names}
    if not named:
        raise ConfigurationError(f"{path}: no materialization is selected", f"add a materialization to {path}")
    if unknown or not selected:
        known = ", ".join(f"{aggregate} -> {target}" for _, aggregate, target in named)
        problem = (
            f"no aggregate or target {', '.join(sorted(unknown))}" if unknown else "no materialization is selected"
        )
        raise UsageError(f"{path}: {problem}", f"correct --aggregate or --target; {path} has: {known}")
    return selected


def _read(path: Path) -> JobFile:
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", _WRITE_AGAIN) from None
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is not JSON: {error}", _WRITE_AGAIN) from None
    if not isinstance(data, dict) or "version" not in data:
        raise ConfigurationError(f"{path} is not a job file: it has no `version`", _WRITE_AGAIN)
    if data["version"] != VERSION:
        message = f"{path} has version {data['version']!r}; this version of outbox-kit reads version {VERSION}"
        raise ConfigurationError(message, "write the file again with this version of outbox-kit")
    return _convert(data, JobFile, path)


def _convert(data: Mapping[str, Any], kind: type[S], path: Path, location: str = "") -> S:
    """Convert `data`, which is at the JSON path `location` in the file, to an instance of `kind`."""
    try:
        converted = msgspec.convert(data, kind)
        for key in data.get("registry", ()):
            if key not in HttpEndpoint.__dataclass_fields__:  # msgspec ignores unknown keys of a dataclass
                raise msgspec.ValidationError(f"Object contains unknown field `{key}` - at `$.registry`")
        return converted
    except msgspec.ValidationError as error:  # the message contains no values except invalid choices
        reason, _, relative = str(error).partition(" - at `$")
        message = f"{reason} - at `${location}{relative or '`'}" if location or relative else reason
        raise ConfigurationError(f"{path}: {message}", _hint(message)) from None


def _hint(message: str) -> str:
    """Return the hint for a validation error. The hint lists the allowed keys or values if they are known."""
    match = re.search(r"`\$(?:.*\.)?(\w*)(?:\[\w+\])*`$", message)
    key = match[1] if match else ""
    if "unknown field" in message:
        allowed = [", ".join(keys) for keys in _KEYS[key]]
        return f"use only these keys in {key or 'the file'}: {'; or '.join(allowed)}"
    if message.startswith("Invalid") and key in _CHOICES_BY_KEY:
        return f"set {key} to one of: {', '.join(_CHOICES_BY_KEY[key])}"
    return _WRITE_AGAIN


def _with_variables(value: Any, environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _with_variables(item, environ) for key, item in value.items()}
    return REFERENCE.sub(lambda match: environ[match[1]], value) if isinstance(value, str) else value
