"""Commands in hints contain the options that select the pipeline file and the environment, or the job file."""

from __future__ import annotations

import pytest

from outbox_events.errors import RefusedError
from outbox_spark.commands import exit_codes

FILES = "-p a.yaml -e prod"
TABLE = "--target warehouse --table book"


@pytest.mark.parametrize(
    ("selected", "table_options", "printed"),
    [
        ({}, "", "hint: run `outbox apply`, then `outbox-rebuild`"),
        ({}, TABLE, f"hint: run `outbox apply`, then `outbox-rebuild {TABLE}`"),
        ({"pipeline": FILES}, "", f"hint: run `outbox apply {FILES}`, then `outbox-rebuild {FILES}`"),
        ({"job": "--job j.json"}, TABLE, f"hint: run `outbox apply`, then `outbox-rebuild --job j.json {TABLE}`"),
    ],
)
def test_adds_the_selected_files_and_table(
    selected: dict[str, str], table_options: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_codes, "_selection", {})
    exit_codes.select_files(**selected)
    lines: list[str] = []
    error = RefusedError("no", "run `outbox apply`, then `outbox-rebuild`")
    exit_codes.report_error(error, lines.append, "", table_options)
    assert lines[1] == printed
