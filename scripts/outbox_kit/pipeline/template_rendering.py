"""Rendering of one connector template in Jinja's sandbox, and a program that renders with limits of time and memory.

render.py runs this file as a program, which imports only jinja2, for templates that outbox-kit does not contain.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import (
    BaseLoader,
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateRuntimeError,
    Undefined,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS = 2
MEMORY_BYTES = 512 * 1024 * 1024
# Errors of a template or an expression, such as {{ 1 / 0 }} or a range that the sandbox rejects.
JINJA_ERRORS = (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError, SyntaxError, MemoryError)


class UnsupportedPipelineError(TemplateRuntimeError):
    """The template does not support a setting of the pipeline file."""


def render_text(folders: Sequence[Path], name: str, values: Mapping[str, Any]) -> str:
    """Return the rendered text of a template. Raises JINJA_ERRORS."""
    # A template is part of a change under review: the sandbox prevents that it executes code.
    jinja = ImmutableSandboxedEnvironment(loader=_Loader(folders), undefined=StrictUndefined, autoescape=False)
    # Jinja's tojson escapes <, >, & and ' for HTML, which would change schemas.
    jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False, default=_raise_not_json)
    jinja.globals["refuse"] = _raise_unsupported
    return jinja.get_template(name).render(values)


class _Loader(BaseLoader):
    """Loader that reads no files outside of its folders, also through symbolic links."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._files = FileSystemLoader(self._folders)

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        for folder in self._folders:
            file = (folder / template).resolve()
            if file.exists() and not any(file.is_relative_to(known) for known in self._folders):
                raise TemplateNotFound(template)
        return self._files.get_source(environment, template)


def _raise_not_json(value: object) -> NoReturn:
    if isinstance(value, Undefined):
        str(value)  # raises UndefinedError with the name of the value
    raise TypeError(f"a value of type {type(value).__name__} cannot be rendered as JSON")


def _raise_unsupported(reason: str) -> NoReturn:
    """Raise the error of a setting that the template does not support. Templates call this function as `refuse`."""
    raise UnsupportedPipelineError(reason)


def main() -> None:
    """Read {folders, name, values} from stdin, and write {text} or {error, kind} to stdout."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    with suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        answer = {
            "text": render_text([Path(folder) for folder in request["folders"]], request["name"], request["values"])
        }
        output = json.dumps(answer)
    except JINJA_ERRORS as error:
        output = json.dumps({"error": str(error)[:1000] or type(error).__name__, "kind": type(error).__name__})
    sys.stdout.write(output)


if __name__ == "__main__":
    main()
