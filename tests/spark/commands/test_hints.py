"""Commands in hints contain the options that select the pipeline file and the environment, or the job file."""

from __future__ import annotations

import pytest

from outbox_events.errors import RefusedError
from outbox_spark.commands import exit_codes

FILES = "-p a.yaml -e prod"


@pytest.mark.parametrize(
    ("selected", "printed"),
    [
        ({}, "hint: run `outbox apply`, then `outbox-rebuild`"),
        ({"pipeline": FILES}, f"hint: run `outbox apply {FILES}`, then `outbox-rebuild {FILES}`"),
        ({"job": "--job j.json"}, "hint: run `outbox apply`, then `outbox-rebuild --job j.json`"),
    ],
)
def test_adds_the_selected_files(selected: dict[str, str], printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_codes, "_selection", {})
    exit_codes.select_files(**selected)
    lines: list[str] = []
    exit_codes.report_error(RefusedError("no", "run `outbox apply`, then `outbox-rebuild`"), lines.append)
    assert lines[1] == printed
