"""Expand `{{ env.NAME }}` and `{{ stack.NAME }}` in an environment file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from jinja2 import Environment, StrictUndefined, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outbox_common.error_text import one_line
from outbox_common.secret_patterns import has_secret, is_secret_name
from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline.overrides import Overrides, variable_of
from outbox_kit.pipeline.template_rendering import JINJA_ERRORS
from outbox_kit.pipeline.validation_errors import failure
from outbox_kit.pipeline.values_with_origins import LiteralText, Location, Values

STACK_STATE_FILE = Path("build/stack/state.json")
START_HINT = "run `outbox stack up`"
UNSET = "unset"
# Mappings in which the value of any key can be a secret.
MAPPINGS_WITH_SECRETS = ("kafka.client", "targets.*.catalog")
# Expressions can only look up values and change their form. Other operations could exhaust CPU time or memory.
NODES: tuple[type[nodes.Node], ...] = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const),
    *(nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Concat),
)
FILTERS = frozenset({"d", "default", "int", "lower", "string", "trim", "upper", "urlencode"})


class _Namespace:
    """Object `env` or `stack` in an expression. An attribute is looked up only when the expression uses it."""

    def __init__(self, lookup: Callable[[str], Any]) -> None:
        self._lookup = lookup

    # Without this line, `{{ env | list }}` would look up the names 0, 1, 2, ... in an endless loop.
    __iter__ = None

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON values
        return self._lookup(name)


@dataclass(frozen=True)
class Expansion:
    """Expands the expressions in one environment file.

    `optional_sections` lists the sections that some commands do not need, and `needed_keys` the keys that this command
    needs. `env_file` supplies variables that are not set in the process. `unset_sections` collects the optional
    sections that use an unset variable and that this command does not need.
    """

    values: Values
    project: Path
    overrides: Overrides
    optional_sections: Collection[str]
    needed_keys: Collection[str]
    env_file: Path | None = None
    unset_sections: set[str] = field(default_factory=set)
    _missing_variables: list[tuple[str, str]] = field(default_factory=list)

    def expand(self, key: str) -> Any:  # noqa: ANN401 - YAML data
        """Return the expanded value of a top-level key. Raises ConfigurationError for an invalid expression."""
        return self._expand(self.values.data[key], (key,))

    def raise_missing(self) -> None:
        """Raise ConfigurationError if variables that the command needs are not set."""
        if not self._missing_variables:
            return
        names = dict.fromkeys(name for name, _ in self._missing_variables)
        hint = " ".join(["export", *(f"{name}=..." for name in names), "and run again"])
        if self.env_file is not None:
            hint += f"; or set them in {self.env_file}" + ("" if self.env_file.is_file() else ", which does not exist")
            # `make up` writes this file when it starts the stack in containers.
            is_of_stack = self.env_file.parts[-2:] == ("compose", ".env") and not self.env_file.exists()
            hint = "start the stack with `make up`" if is_of_stack else hint
        raise failure((problem for _, problem in self._missing_variables), hint)

    def variable(self, location: Location, name: str) -> str:
        """Return the value of an environment variable, or UNSET. If the command needs the unset variable, record it."""
        value = self.overrides.environ.get(name) or self._env_file_variables.get(name)
        if value:
            return value
        section = str(location[0])
        if section in self.optional_sections and not self._is_needed(location):
            self.unset_sections.add(section)
        else:
            key = ".".join(map(str, location))
            problem = f"{self.values.origin(location)}: {key}: environment variable {name} is not set"
            self._missing_variables.append((name, problem))
        return UNSET

    def _is_needed(self, location: Location) -> bool:
        return any(_is_below(location, key) for key in self.needed_keys)

    @cached_property
    def _env_file_variables(self) -> dict[str, str | None]:
        if self.env_file is None or not self.env_file.is_file():
            return {}
        try:
            return dotenv_values(self.env_file, interpolate=False)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"cannot read {self.env_file}: {type(error).__name__}", "set env_file to a readable UTF-8 file"
            ) from None

    def _stack_value(self, name: str) -> Any:  # noqa: ANN401 - JSON values
        """Return a value of the running embedded stack."""
        file = self.project / STACK_STATE_FILE
        if not file.exists():
            raise ConfigurationError("the embedded stack is not running", START_HINT)
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            services, values = state["services"], dict(state["environment"])
        except (OSError, ValueError, KeyError, TypeError):
            message = f"the embedded stack's state file {file} is invalid"
            raise ConfigurationError(message, "run `outbox stack down --purge`, then `outbox stack up`") from None
        if not services:
            raise ConfigurationError("the embedded stack is not running", START_HINT)
        if name not in values:
            names = ", ".join(sorted(values))
            raise ConfigurationError(f"the embedded stack has no value {name!r}", f"use one of the values {names}")
        return values[name]

    def _expand(self, value: Any, location: Location) -> Any:  # noqa: ANN401 - YAML
        """Expand strings after YAML is parsed, because a secret can contain characters that are special in YAML."""
        if isinstance(value, dict):
            return {key: self._expand(item, (*location, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._expand(item, (*location, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        if self.overrides.reference is not None and self._is_needed(location):
            return self._without_secret(value, location, self.overrides.reference)
        return self._expand_text(value, location, partial(self.variable, location))

    def _without_secret(self, value: str, location: Location, reference: Callable[[str], str]) -> str:
        """Return the expanded value, with each secret replaced by a reference to a variable."""
        references: list[str] = []

        def variable(name: str) -> str:
            references.append(reference(name))
            return references[-1]

        is_secret = is_secret_name(".".join(map(str, location)))
        may_be_secret = is_secret or any(_is_below(location, key) for key in MAPPINGS_WITH_SECRETS)
        text = self._expand_text(value, location, variable if may_be_secret else partial(self.variable, location))
        rest = reduce(lambda rest, part: rest.replace(part, ""), references, text)
        if has_secret(rest) or (is_secret and rest == text):
            return reference(variable_of(location))
        return text

    def _expand_text(self, value: str, location: Location, variable: Callable[[str], str]) -> str:
        if isinstance(value, LiteralText):
            return str(value)
        if "{{" not in value:
            return value
        jinja = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
        try:
            env, stack = _Namespace(variable), _Namespace(self._stack_value)
            _require_lookup(jinja, value)
            return jinja.from_string(value).render(env=env, stack=stack)
        except JINJA_ERRORS as error:
            message = f"{self.values.origin(location)}: {'.'.join(map(str, location))}: {error}"
            raise ConfigurationError(one_line(message), "use {{ env.NAME }} or {{ stack.NAME }}") from None


def _require_lookup(jinja: Environment, text: str) -> None:
    """Raise TemplateSyntaxError if an expression contains a disallowed call, loop, operator or filter."""
    for node in jinja.parse(text).find_all(nodes.Node):
        if not isinstance(node, NODES) or (isinstance(node, nodes.Filter) and node.name not in FILTERS):
            name = f"filter {node.name}" if isinstance(node, nodes.Filter) else type(node).__name__.lower()
            raise TemplateSyntaxError(f"not supported in an expression: {name}", node.lineno)


def _is_below(location: Location, key: str) -> bool:
    """Return whether `location` is the dotted `key` or is below it. `*` in the key matches any name."""
    segments = key.split(".")
    pairs = zip(segments, map(str, location), strict=False)
    return len(segments) <= len(location) and all(segment in ("*", name) for segment, name in pairs)
