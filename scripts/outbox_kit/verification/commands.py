"""Commands in the remedies of checks."""

from __future__ import annotations

import re
from dataclasses import replace

from outbox_kit.rules import Check

OUTBOX_COMMAND = re.compile(r"`(outbox [^`]+)`")


def complete_commands(checks: list[Check], options: str) -> list[Check]:
    """Return the checks with `options` after each `outbox` command, so that it selects the pipeline of the run."""
    return [replace(check, remedy=OUTBOX_COMMAND.sub(rf"`\1 {_escaped(options)}`", check.remedy)) for check in checks]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\")
