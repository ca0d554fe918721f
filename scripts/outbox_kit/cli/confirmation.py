"""Asks a person before something that cannot be taken back."""

from __future__ import annotations

import sys

import typer

from outbox_kit.cli.console import say
from outbox_kit.cli.options import Common


def confirm(common: Common, question: str, *, hint: str) -> None:
    """Go on with --yes or a person's yes, else exit with 1; never wait for an answer that cannot come."""
    if common.yes:
        return
    if not sys.stdin.isatty():
        say(f"error: not a terminal, and --yes was not given\nhint:  {hint}")
        raise typer.Exit(1)
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
