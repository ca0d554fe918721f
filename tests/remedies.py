"""Commands in the remedies of checks."""

from __future__ import annotations

import re

# SQL statements and commands in remedies, where they are between backquotes.
COMMAND = re.compile(r"`((?:curl|outbox|kafka-configs|alter|begin|create|drop|grant|rollback|select) [^`]+)`")


def commands_of(remedy: str) -> list[str]:
    """Return the commands of a remedy, in the order in which they must be run."""
    return COMMAND.findall(remedy)
