"""docs/pipeline.md: its files are written, its commands run in order, their output compared."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outbox_kit.cli import main

BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```(?P<kind>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?P<variables>(\w+=\S+ )*)outbox (?P<arguments>[^|>]*)(?P<rest>.*)")


@pytest.fixture
def play(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], str]]:
    """Run one line of a shell; `outbox` in this process, which is quicker."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(workspace)
    for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
        monkeypatch.delenv(name)

    def shell(line: str, given: str = "") -> str:
        done = subprocess.run(["/bin/sh", "-c", line], input=given, capture_output=True, text=True, check=True)
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
        rest = command["rest"]
        return printed.err + (shell(f"cat {rest}", printed.out) if rest else printed.out)

    yield run
    signal.signal(signal.SIGTERM, handler)


def written(block: re.Match[str], folder: Path) -> None:
    """A file, or the end of one: a YAML block's first line names it, of JSON the line before."""
    text = block["text"]
    if block["kind"] == "json":
        path = re.search(r"`(\S+\.avsc)`:$", block["before"])
        assert path, block["before"]
        (folder / path[1]).write_text(text, encoding="utf-8")
        return
    place = re.match(r"# (at the end of )?(\S+\.yaml)\n", text)
    assert place, text
    with (folder / place[2]).open("a", encoding="utf-8") as file:
        file.write(text)


def test_commands_of_the_page_print_what_it_shows(
    repository: Path, workspace: Path, play: Callable[[str], str]
) -> None:
    page = (repository / "docs" / "pipeline.md").read_text(encoding="utf-8")
    printed: list[str] = []
    compared = 0
    for block in BLOCK.finditer(page):
        if block["kind"] == "sh":
            printed.append("".join(map(play, block["text"].splitlines())))
        elif block["kind"] == "text":
            assert printed[-1] == block["text"]
            compared += 1
        else:
            written(block, workspace)
    assert compared == len(printed) == 8
