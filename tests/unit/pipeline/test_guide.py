"""docs/pipeline.md: the test writes its files, runs its commands in order, and compares their output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outbox_kit.cli import main

BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```(?P<kind>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?P<variables>(\w+=\S+ )*)outbox (?P<arguments>[^|>]*)(?P<redirection>.*)")


@pytest.fixture
def run_line(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept_signal_handlers: None
) -> Callable[[str], str]:
    """Return a function that runs one line of shell and returns its output; `outbox` runs in this process."""
    del kept_signal_handlers
    monkeypatch.chdir(workspace)
    for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
        monkeypatch.delenv(name)

    def shell(line: str, stdin: str = "") -> str:
        done = subprocess.run(["/bin/sh", "-c", line], input=stdin, capture_output=True, text=True, check=True)
        return done.stdout

    def run(line: str) -> str:
        command = COMMAND.fullmatch(line)
        if command is None:
            return shell(line)
        with monkeypatch.context() as patched:
            for variable in command["variables"].split():
                patched.setenv(*variable.split("=", 1))
            patched.setattr(sys, "argv", ["outbox", *shlex.split(command["arguments"])])
            with pytest.raises(SystemExit):
                main()
        printed = capsys.readouterr()
        redirection = command["redirection"]
        return printed.err + (shell(f"cat {redirection}", printed.out) if redirection else printed.out)

    return run


def write_file(block: re.Match[str], folder: Path) -> None:
    """Write a file. Its path is in the first line of YAML, which may be appended, or in the line before JSON."""
    text = block["text"]
    if block["kind"] == "json":
        path = re.search(r"`(\S+\.avsc)`:$", block["before"])
        assert path, block["before"]
        (folder / path[1]).write_text(text, encoding="utf-8")
        return
    header = re.match(r"# (at the end of )?(\S+\.yaml)\n", text)
    assert header, text
    with (folder / header[2]).open("a", encoding="utf-8") as file:
        file.write(text)


def test_output_of_commands_is_that_of_the_page(
    repository: Path, workspace: Path, run_line: Callable[[str], str]
) -> None:
    page = (repository / "docs" / "pipeline.md").read_text(encoding="utf-8")
    printed: list[str] = []
    compared = 0
    for block in BLOCK.finditer(page):
        if block["kind"] == "sh":
            printed.append("".join(map(run_line, block["text"].splitlines())))
        elif block["kind"] == "text":
            assert printed[-1] == block["text"]
            compared += 1
        else:
            write_file(block, workspace)
    assert compared == len(printed) == 8
