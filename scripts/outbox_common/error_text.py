"""Format errors without the rows and values that PostgreSQL's messages contain, and escape text for people.

Keys, names and messages from other systems can contain characters that control a terminal, reorder the text of a line
or are invisible. JSON output is not escaped.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

MAX_MESSAGE_LENGTH = 200
# Matches C0 and C1 control characters except tab and line feed, line separators, format characters except joiners
# (U+200C, U+200D), and characters that XML does not allow. Also matches a line feed before `::` and the first character
# of `##[`, because GitHub executes log lines that begin with `::` or contain `##[`.
_CONTROLS = re.compile(
    r"\n(?=[ \t]*::)|#(?=#\[)|[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def first_line(text: str) -> str:
    """Return the first line of a text, shortened to MAX_MESSAGE_LENGTH characters."""
    line = text.strip().split("\n", maxsplit=1)[0]
    return line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[:MAX_MESSAGE_LENGTH]}..."


def postgres_message(error: Any) -> str:  # noqa: ANN401 - psycopg.Error, which this package must not import
    """Return the first line of a psycopg.Error, or only the SQLSTATE if the message can contain a value."""
    sqlstate = error.sqlstate
    if sqlstate is None:  # the client raised the error, for example because the connection failed
        return first_line(str(error)) or type(error).__name__
    if sqlstate.startswith("22"):  # class 22, data exception: the message can contain a value
        return f"a value was rejected, SQLSTATE {sqlstate}"
    # Detail and context can quote rows. The primary message only names tables, columns and constraints.
    return first_line(error.diag.message_primary or str(error)) or f"SQLSTATE {sqlstate}"


def traceback_text(error: BaseException, message_of: Callable[[BaseException], str]) -> str:
    """Return the traceback of an error and its causes. `message_of` returns the message to show for each error."""
    text = "".join(traceback.format_exception(error))
    for cause in _chain(error):
        message = _text(cause)
        text = text.replace(message, message_of(cause)) if message else text
    return text


def postgres_redacted(error: BaseException) -> str:
    """Return the message of an error. If it is a psycopg error, remove rows and values from the message."""
    return postgres_message(error) if hasattr(error, "sqlstate") else _text(error)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # str() fails for Delta errors without a message template in PySpark
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and each error that was being handled when one of these errors was raised."""
    visited: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop()
        if cause is not None and id(cause) not in visited:
            visited.add(id(cause))
            yield cause
            pending += [cause.__cause__, cause.__context__]


def printable(text: str) -> str:
    r"""Replace control characters, except tab and line feed, by escape sequences such as \x1b. Return the new text.

    A line feed before `::` and the first character of `##[` are also escaped.
    """
    return _CONTROLS.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    return r"\x23" if character == "#" else character.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    r"""Return the printable text with \n for each line feed, so that a value cannot add lines to the output."""
    return printable(text).replace("\n", r"\n")
