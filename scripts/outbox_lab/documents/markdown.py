"""Format Markdown for generated documents, in lines of at most WIDTH characters."""

from __future__ import annotations

import textwrap

WIDTH = 118


def list_item(text: str, indent: str = "") -> str:
    """Return a wrapped list item. `<` is escaped, because otherwise it would begin an HTML tag."""
    escaped = text.replace("<", "&lt;")
    lines = textwrap.wrap(escaped, WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
    return f"{indent}- " + f"\n{indent}  ".join(lines) + "\n"


def paragraph(text: str) -> str:
    """Return a wrapped paragraph."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"
