"""Text for a terminal, without the characters that a terminal executes or that reorder a line.

Keys, names and messages of other systems can contain such characters. JSON output stays exact.
"""

from __future__ import annotations

import re

# C0 and C1 control characters except tab and line feed, line separators, controls of the bidirectional algorithm, and
# surrogates, which cannot be encoded. A line feed before `::`, and `##[` anywhere in a line, are controls too: GitHub
# executes such lines of a log.
_CONTROLS = re.compile(
    r"\n(?=[ \t]*::)|#(?=#\[)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


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
