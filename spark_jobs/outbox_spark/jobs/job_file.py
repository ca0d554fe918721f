"""Jobs as a file: what a driver needs to run them without the deploy tool, its pipeline file and its packages.

    {"version": 1, "jobs": [{"aggregate": ..., "topic": ..., "table": ..., "kafka": {...}, "registry": {...},
                             "target_name": ..., "target": {"kind": "postgres", ...}, "options": {...}}]}

The keys are the fields of model.MaterializeJob; times are seconds. A text may hold `${env:NAME}`, which is replaced
by that environment variable when a command starts: no secret is in the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from outbox_spark.errors import ConfigurationError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, MaterializeJob, PostgresTarget

VERSION = 1
"""Of the file's form; raised when a file of before can no longer be read as it was meant."""

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_KINDS: Mapping[str, type] = {
    "postgres": PostgresTarget,
    "delta": DeltaTarget,
    "iceberg": IcebergTarget,
}
_RENDER = "write it again with --write-job"


def reference(name: str) -> str:
    """How a job file names an environment variable."""
    return f"${{env:{name}}}"


def as_text(jobs: Sequence[MaterializeJob]) -> str:
    """The file's text. Whatever is in the jobs is written: their secrets have to be references by then."""
    return json.dumps({"version": VERSION, "jobs": [_plain(job) for job in jobs]}, indent=2) + "\n"


def variables(text: str) -> list[str]:
    """Names of the environment variables that a job file needs, sorted."""
    return sorted(set(REFERENCE.findall(text)))


def read_jobs(
    path: Path,
    environ: Mapping[str, str] | None = None,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
) -> list[MaterializeJob]:
    """The jobs of a file, in its order; empty collections select all.

    Raises ConfigurationError: unreadable, of another version, a key that is unknown, missing or of another type, a
    variable of a selected job that is not set, or nothing selected.
    """
    reading = _Reading(str(path), os.environ if environ is None else environ)
    entries = reading.entries(path)
    chosen = [entry for entry in entries if _selected(entry, "aggregate", aggregates)]
    chosen = [entry for entry in chosen if _selected(entry, "target_name", targets)]
    if not chosen:
        known = ", ".join(f"{e.get('aggregate')} -> {e.get('target_name')}" for e in entries) or "none"
        raise ConfigurationError(f"{path}: no materialization is selected", f"the file has: {known}")
    jobs: list[MaterializeJob] = [
        reading.value(MaterializeJob, entry, f"jobs[{index}]") for index, entry in enumerate(entries) if entry in chosen
    ]
    reading.raise_unset()
    return jobs


def _selected(entry: Mapping[str, Any], key: str, wanted: Collection[str]) -> bool:
    return not wanted or entry.get(key) in wanted


def _plain(value: Any) -> Any:  # noqa: ANN401 - what a field can hold
    if is_dataclass(value):
        kind = [("kind", name) for name, cls in _KINDS.items() if isinstance(value, cls)]
        return dict([*kind, *((entry.name, _plain(getattr(value, entry.name))) for entry in fields(value))])
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    return dict(value) if isinstance(value, Mapping) else value


@dataclass
class _Reading:
    """One file being read: where, with which variables, and which of those are not set."""

    where: str
    environ: Mapping[str, str]
    unset: set[str] = field(default_factory=set)

    def entries(self, path: Path) -> list[dict[str, Any]]:
        """The jobs as plain data."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"cannot read {self.where}: {error.strerror}", _RENDER) from None
        except ValueError as error:
            raise ConfigurationError(f"{self.where} is not JSON: {error}", _RENDER) from None
        if not isinstance(data, dict) or "version" not in data:
            raise ConfigurationError(f"{self.where} is no job file: it has no `version`", _RENDER)
        if data["version"] != VERSION:
            message = f"{self.where} has version {data['version']!r}; these jobs know version {VERSION}"
            raise ConfigurationError(message, "write it again with the outbox-kit that runs it")
        self._check_keys(data, {"version", "jobs"}, {"version", "jobs"}, "the file")
        jobs = data["jobs"]
        if not isinstance(jobs, list) or not all(isinstance(entry, dict) for entry in jobs):
            raise self._wrong("jobs", "a list of objects", jobs)
        return jobs

    def value(self, kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - by the type of the field
        """`value` as an instance of `kind`, the type of a field of the model."""
        options = [option for option in get_args(kind) if option is not type(None)]
        if get_origin(kind) is None or issubclass(get_origin(kind), Mapping):
            return self._one(kind, value, where)
        if value is None and len(options) < len(get_args(kind)):
            return None
        return self._one(options[0], value, where) if len(options) == 1 else self._target(value, where)

    def _one(self, kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
        if is_dataclass(kind):
            return self._record(kind, value, where)
        if get_origin(kind) is not None:  # a mapping of texts
            if not isinstance(value, dict):
                raise self._wrong(where, "an object", value)
            return {name: self._one(str, text, f"{where}.{name}") for name, text in value.items()}
        if kind is timedelta:
            return timedelta(seconds=self._plain_one(int, value, where))
        if issubclass(kind, Enum):
            known = [member.value for member in kind]
            if value not in known:
                raise self._wrong(where, f"one of {', '.join(known)}", value)
            return kind(value)
        return self._plain_one(kind, value, where)

    def _plain_one(self, kind: type, value: Any, where: str) -> Any:  # noqa: ANN401
        # True is an int in Python.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = {str: "a text", int: "a whole number", bool: "true or false"}
            raise self._wrong(where, names.get(kind, kind.__name__), value)
        return REFERENCE.sub(self._resolved, value) if isinstance(value, str) else value

    def _record(self, kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            raise self._wrong(where, "an object", value)
        needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        hints = get_type_hints(kind)
        self._check_keys(value, needed, {f.name for f in fields(kind)}, where)
        return kind(**{name: self.value(hints[name], entry, f"{where}.{name}") for name, entry in value.items()})

    def _target(self, value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            raise self._wrong(where, "an object", value)
        if value.get("kind") not in _KINDS:
            raise self._wrong(f"{where}.kind", f"one of {', '.join(_KINDS)}", value.get("kind"))
        rest = {name: entry for name, entry in value.items() if name != "kind"}
        return self._record(_KINDS[value["kind"]], rest, where)

    def _check_keys(self, found: Mapping[str, Any], needed: set[str], known: set[str], where: str) -> None:
        unknown, missing = sorted(set(found) - known), sorted(needed - set(found))
        if unknown:
            message = f"{self.where}: {where} has an unknown key {unknown[0]!r}"
            raise ConfigurationError(message, f"known: {', '.join(sorted(known))}")
        if missing:
            raise ConfigurationError(f"{self.where}: {where} lacks the key {missing[0]!r}", _RENDER)

    def _wrong(self, where: str, expected: str, found: Any) -> ConfigurationError:  # noqa: ANN401
        # The value may be a secret that somebody wrote down: only its kind is told, unless it is no text of its own.
        kind = "nothing" if found is None else type(found).__name__
        return ConfigurationError(f"{self.where}: {where} must be {expected}; found {kind}", _RENDER)

    def _resolved(self, match: re.Match[str]) -> str:
        name = match.group(1)
        if not self.environ.get(name):
            self.unset.add(name)
        return self.environ.get(name, "")

    def raise_unset(self) -> None:
        """Raise ConfigurationError when variables are not set: all of them at once."""
        if self.unset:
            names = sorted(self.unset)
            message = f"{self.where}: environment variables are not set: {', '.join(names)}"
            hint = " ".join(["export", *(f"{name}=..." for name in names), "and run again"])
            raise ConfigurationError(message, hint)
