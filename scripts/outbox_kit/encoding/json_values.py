"""Parse JSON, and keep the text of each number and every member of an object, including repeated members."""

from __future__ import annotations

import json
import re

from outbox_kit.encoding.row import PayloadError

MAX_DEPTH = 200
MAX_DIGITS = 1000
"""Maximum number of digits. In some places, the connector's parser accepts one more in a fraction or an exponent."""
MAX_NAME = 50_000
"""Maximum length, in characters, of a member name that the connector's parser accepts."""
WHITE_SPACE = " \t\r\n"
# A pair of backslashes before `\u` is an escaped backslash.
CONTROL = re.compile(r"((?<!\\)(?:\\\\)*\\u)(00[01][0-9a-f])")


class IntText(str):
    """Text of a JSON number without a fraction or an exponent."""

    __slots__ = ()


class FloatText(str):
    """Text of a JSON number with a fraction or an exponent."""

    __slots__ = ()


class Members(list[tuple[str, object]]):
    """Members of a JSON object in their original order."""

    __slots__ = ()


class _LimitError(ValueError):
    """A number or a name is too long, or the value is nested too deeply."""


def _limited(text: str) -> str:
    if len(text) > MAX_DIGITS and sum(map(str.isdigit, text)) > MAX_DIGITS:
        raise _LimitError
    return text


def _members(pairs: list[tuple[str, object]]) -> Members:
    if any(len(name) > MAX_NAME for name, _ in pairs):
        raise _LimitError
    return Members(pairs)


def _reject_constant(_: str) -> object:
    raise ValueError("NaN and Infinity are not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=lambda text: IntText(_limited(text)),
    parse_float=lambda text: FloatText(_limited(text)),
    parse_constant=_reject_constant,
)


def is_null(text: str) -> bool:
    """Return whether the text is JSON null. White space before and after it is ignored."""
    return text.strip(WHITE_SPACE) == "null"


def parse(text: str) -> object:
    """Return the parsed value. Raises PayloadError if the text is not JSON or exceeds a limit of this module."""
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise _LimitError
    except (_LimitError, RecursionError):
        problem = f"nested over {MAX_DEPTH} levels deep, or a number, name or string too long"
        raise PayloadError(problem) from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise PayloadError("there is text after the end of the JSON value") from None
        raise PayloadError(f"not valid JSON at line {error.lineno}, column {error.colno}") from None
    except ValueError:
        raise PayloadError("not valid JSON") from None
    return value


def _depth(value: object) -> int:
    """Return the maximum number of nested objects and arrays."""
    containers, depth = ([value] if isinstance(value, list) else []), 0
    while containers:
        depth += 1
        containers = [child for node in containers for child in _children(node) if isinstance(child, list)]
    return depth


def _children(node: list[object]) -> list[object]:
    return [child for _, child in node] if isinstance(node, Members) else node


def compact(value: object) -> str:
    """Return the value as compact JSON. Numbers keep their original digits."""
    if isinstance(value, Members):
        return "{" + ",".join(f"{quote(name)}:{compact(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    if isinstance(value, IntText | FloatText):
        return str.__str__(value)
    return quote(value)


def quote(value: object) -> str:
    """Return a string, boolean, number or None as JSON, formatted as the connector's worker formats it."""
    text = json.dumps(value, ensure_ascii=False)
    return CONTROL.sub(lambda match: match[1] + match[2].upper(), text) if "\\u00" in text else text


def kind_of(value: object) -> str:
    """Return the name of the value's JSON type, for use in messages."""
    if isinstance(value, Members):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, IntText | FloatText):
        return "number"
    if isinstance(value, bool):
        return "boolean"
    return "null" if value is None else "string"
