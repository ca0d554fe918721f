"""Render one connector template in Jinja's sandbox, with limits on steps and sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from jinja2 import (
    BaseLoader,
    BytecodeCache,
    Environment,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateRuntimeError,
    Undefined,
    nodes,
)
from jinja2.bccache import Bucket
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outbox_kit.pipeline.values_with_origins import MAX_BYTES, read_text

MAX_STEPS = 50_000
MAX_SIZE = 10_000_000
MAX_OPERAND = 2**63
# Filters that have an argument that determines the size of the result.
UNBOUNDED_FILTERS = ("batch", "center", "format", "indent", "slice", "wordwrap")
# Errors that rendering a template or an expression can raise. {{ 1 / 0 }} and oversized ranges raise some of them.
JINJA_ERRORS = (
    *(TemplateError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RuntimeError, OSError),
    *(AssertionError, SyntaxError, MemoryError),
)


class UnsupportedPipelineError(TemplateRuntimeError):
    """Error for a setting of the pipeline file that the template does not support."""


def render_text(folders: Sequence[Path], name: str, values: Mapping[str, Any]) -> str:
    """Return the rendered text of a template. Raises JINJA_ERRORS."""
    # The sandbox prevents code execution, because a template can be part of a change that is not yet reviewed.
    jinja = _Sandbox(
        loader=_Loader(folders), undefined=StrictUndefined, autoescape=False, bytecode_cache=_COMPILED_TEMPLATES
    )
    for unbounded in UNBOUNDED_FILTERS:
        del jinja.filters[unbounded]
    del jinja.globals["lipsum"]
    # Jinja's tojson escapes <, >, & and ' for HTML, which would change schemas.
    jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False, default=_raise_not_json)
    jinja.globals["refuse"] = _raise_unsupported
    return jinja.get_template(name).render(values)


def _limited(value: Any) -> Any:  # noqa: ANN401 - a value of a template
    if isinstance(value, str | list | tuple) and len(value) > MAX_SIZE:
        raise TemplateRuntimeError(f"a value has more than {MAX_SIZE} characters or items")
    return value


class _LimitedCode(CodeGenerator):
    """Code generator for templates. The generated code counts loop iterations, and calls of macros and templates."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802 - Jinja's name
        parts: list[Any] = [node, *node.find_all((nodes.Block, nodes.CallBlock, nodes.For, nodes.Macro))]
        for part in parts:
            step = nodes.Call(nodes.EnvironmentAttribute("count_step"), [], [], None, None)
            part.body.insert(0, nodes.ExprStmt(step, lineno=part.lineno))
        super().visit_Template(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        self.write("environment.limited(")
        super().visit_Concat(node, frame)
        self.write(")")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Sandbox that limits steps and sizes. It rejects methods of text and numbers, which have no limits."""

    code_generator_class = _LimitedCode
    limited = staticmethod(_limited)
    concat = staticmethod(lambda parts: _limited("".join(parts)))  # joins the output of a template, block or macro
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    _steps = 0

    def count_step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TemplateRuntimeError(f"rendering exceeds {MAX_STEPS} loop iterations and macro calls")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        are_numbers = all(isinstance(value, int | float) and abs(value) < MAX_OPERAND for value in (left, right))
        if operator == "**" or not (operator == "+" or are_numbers):
            raise TemplateRuntimeError(f"operator {operator} is not supported for these values")
        return _limited(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        return not isinstance(obj, str | int) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: object) -> None:
        """Return None, so that is_safe_attribute() also rejects the methods `format` and `format_map`."""


class _CompiledTemplates(BytecodeCache):
    """Compiled templates of this process. A command renders a template several times, and compiling it is slow.

    Only the code is shared, because the environment counts the steps of one rendering.
    """

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED_TEMPLATES = _CompiledTemplates()


class _Loader(BaseLoader):
    """Loader that does not read files outside its folders, not even through symbolic links."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:  # noqa: ARG002
        path = next((path for folder in self._folders if (path := (folder / template).resolve()).is_file()), None)
        if path is None or not any(path.is_relative_to(folder) for folder in self._folders):
            raise TemplateNotFound(template)
        return read_text(path, f"cannot read {path}", "correct the template", MAX_BYTES), str(path), lambda: True


def _raise_not_json(value: object) -> NoReturn:
    if isinstance(value, Undefined):
        str(value)  # raises UndefinedError with the name of the value
    raise TypeError(f"a value of type {type(value).__name__} cannot be rendered as JSON")


def _raise_unsupported(reason: str) -> NoReturn:
    """Raise the error for a setting that the template does not support. Templates call this function as `refuse`."""
    raise UnsupportedPipelineError(reason)
