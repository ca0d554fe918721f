"""Confirmation before a command does what cannot be undone."""

from __future__ import annotations

import sys

import typer

from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_error
from outbox_kit.cli.options import CommonOptions
from outbox_kit.errors import ConfigurationError


def confirm(common: CommonOptions, question: str, *, hint: str) -> None:
    """Return with --yes or after a confirmation, else exit with ERROR; never prompt without a terminal."""
    if common.yes:
        return
    if not sys.stdin.isatty():
        print_error(ConfigurationError("--yes is required: stdin is not a terminal", hint))
        raise typer.Exit(exit_codes.ERROR)
    if not typer.confirm(question, err=True):
        raise typer.Exit(exit_codes.ERROR)
