"""The root cause in the Java stack traces of failed tasks, as one line without payloads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

CAUSED_BY = "Caused by: "
POSTGRES_EXCEPTION = "PSQLException"
MAX_CHARACTERS = 400
# Text that may quote a row: Jackson's source, Connect's structs and records, the row that PostgreSQL rejects.
PAYLOAD_PATTERN = re.compile(
    r"\[Source: .*|(?<!\$)\{.*|Failing row contains.*|Key \(.*?\)=\(.*?\)|(?<=value: ).*|(?<=record: ).*", re.DOTALL
)


def root_cause(traces: tuple[str, ...]) -> str:
    """Return PostgreSQL's error with its hint if the first trace contains one, else the innermost cause.

    Stack frames and text that may quote a row are removed.
    """
    if not traces:
        return "no trace"
    causes = list(_causes(traces[0]))
    cause = next((message for message in reversed(causes) if POSTGRES_EXCEPTION in message), causes[-1])
    if ": " not in cause and len(causes) > 1:
        cause = f"{causes[-2]} ({cause})"
    redacted_cause = PAYLOAD_PATTERN.sub("…", cause)
    return redacted_cause if len(redacted_cause) <= MAX_CHARACTERS else f"{redacted_cause[:MAX_CHARACTERS]}…"


def _causes(trace: str) -> Iterator[str]:
    """Yield the exception and its causes. Indented lines (causes of suppressed exceptions) are omitted."""
    lines = trace.splitlines() or [""]
    for number, line in enumerate(lines):
        if number == 0 or line.startswith(CAUSED_BY):
            # The message of an exception ends before the first stack frame.
            message_lines = takewhile(lambda text: not text.startswith(("\t", CAUSED_BY)), lines[number + 1 :])
            hint = next((text.strip() for text in message_lines if text.strip().startswith("Hint:")), "")
            yield " ".join(filter(None, (line.removeprefix(CAUSED_BY).strip(), hint)))
