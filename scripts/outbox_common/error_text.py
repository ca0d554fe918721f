"""Text of errors without the rows and record values that messages of PostgreSQL contain, and text for a terminal.

Keys, names and messages of other systems can contain characters that a terminal executes or that reorder a line. JSON
output stays exact.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

MAX_MESSAGE_LENGTH = 200
# C0 and C1 control characters except tab and line feed, line separators, controls of the bidirectional algorithm, and
# surrogates, which cannot be encoded. A line feed before `::`, and `##[` anywhere in a line, are controls too: GitHub
# executes such lines of a log.
_CONTROLS = re.compile(
    r"\n(?=[ \t]*::)|#(?=#\[)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def first_line(text: str) -> str:
    """Return the first line of a text, shortened."""
    line = text.strip().split("\n", maxsplit=1)[0]
    return line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[:MAX_MESSAGE_LENGTH]}..."


def postgres_message(error: Any) -> str:  # noqa: ANN401 - psycopg.Error, which this package must not import
    """Return the first line of a psycopg.Error; only the SQLSTATE if the message can contain a value."""
    sqlstate = error.sqlstate
    if sqlstate is None:  # the client raised the error, for example because the connection failed
        return first_line(str(error)) or type(error).__name__
    if sqlstate.startswith("22"):  # class 22, data exception: the message can contain a value
        return f"a value was rejected, SQLSTATE {sqlstate}"
    # Detail and context can contain rows; the primary message only names tables, columns and constraints.
    return first_line(error.diag.message_primary or str(error)) or f"SQLSTATE {sqlstate}"


def traceback_text(error: BaseException, message_of: Callable[[BaseException], str]) -> str:
    """Return the traceback of an error and its causes, in which `message_of` determines the messages."""
    text = "".join(traceback.format_exception(error))
    for cause in _chain(error):
        message = _text(cause)
        text = text.replace(message, message_of(cause)) if message else text
    return text


def postgres_redacted(error: BaseException) -> str:
    """Return the message of any error; for an error of psycopg without rows and values."""
    return postgres_message(error) if hasattr(error, "sqlstate") else _text(error)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # Delta's errors have no text if PySpark has no template for their message
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and the errors during whose handling they were raised."""
    visited: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop()
        if cause is not None and id(cause) not in visited:
            visited.add(id(cause))
            yield cause
            pending += [cause.__cause__, cause.__context__]


def printable(text: str) -> str:
    r"""Return the text with control characters, except tab and line feed, as escape sequences such as \x1b.

    A line feed before `::` is escaped too, and the first character of `##[`.
    """
    return _CONTROLS.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    return r"\x23" if character == "#" else character.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    r"""Return the printable text with line feeds as \n, so that a value cannot look like further lines of output."""
    return printable(text).replace("\n", r"\n")
