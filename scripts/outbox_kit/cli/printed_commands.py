"""Commands in messages, hints and remedies: each selects the pipeline and the environment of the running command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from outbox_kit.errors import OutboxError
from outbox_kit.results.checks import Check

OUTBOX_COMMAND = re.compile(r"`(outbox [^`]+)`")
PIPELINE_OPTION = " -p "

_options: ContextVar[str] = ContextVar("options", default="")


@contextmanager
def commands_completed(options: str) -> Iterator[None]:
    """Let completed() add `options` during the block, and add them to the hint of an error that the block raises."""
    token = _options.set(options)
    try:
        yield
    except OutboxError as error:
        error.hint = completed(error.hint)
        raise
    finally:
        _options.reset(token)


def completed(text: str) -> str:
    """Return the text with the options of commands_completed() after each `outbox` command that has no pipeline."""
    options = _options.get()
    return OUTBOX_COMMAND.sub(lambda match: _complete(match[1], options), text) if options else text


def completed_checks(checks: list[Check]) -> list[Check]:
    """Return the checks with completed remedies."""
    return [replace(check, remedy=completed(check.remedy)) for check in checks]


def _complete(command: str, options: str) -> str:
    return f"`{command}`" if PIPELINE_OPTION in command else f"`{command} {options}`"
