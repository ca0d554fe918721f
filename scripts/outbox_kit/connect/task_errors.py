"""The one line of a Java stack trace that says what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

CAUSED_BY = "Caused by: "
POSTGRES = "PSQLException"
LONGEST = 400
# What may carry a row: Jackson quotes its source, Connect its structs and records, PostgreSQL the row it refuses.
PAYLOAD = re.compile(
    r"\[Source: .*|(?<!\$)\{.*|Failing row contains.*|Key \(.*?\)=\(.*?\)|(?<=value: ).*|(?<=record: ).*", re.DOTALL
)


def root_cause(traces: tuple[str, ...]) -> str:
    """What lies at the bottom of the first failure: the last `Caused by`, or PostgreSQL's own error with its hint.

    Without frames, and without what looks like a row.
    """
    if not traces:
        return "no trace"
    causes = list(_causes(traces[0]))
    cause = next((found for found in reversed(causes) if POSTGRES in found), causes[-1])
    if ": " not in cause and len(causes) > 1:
        cause = f"{causes[-2]} ({cause})"
    cleaned = PAYLOAD.sub("…", cause)
    return cleaned if len(cleaned) <= LONGEST else f"{cleaned[:LONGEST]}…"


def _causes(trace: str) -> Iterator[str]:
    """The exception and its causes; those of suppressed ones are indented and left out."""
    lines = trace.splitlines() or [""]
    for number, line in enumerate(lines):
        if number == 0 or line.startswith(CAUSED_BY):
            hint = next((found for found in _message(lines[number + 1 :]) if found.startswith("Hint:")), "")
            yield " ".join(filter(None, (line.removeprefix(CAUSED_BY).strip(), hint)))


def _message(lines: list[str]) -> Iterator[str]:
    """The further lines of a message, up to the first frame."""
    for line in lines:
        if line.startswith(("\t", CAUSED_BY)):
            return
        yield line.strip()
