"""The commands of README.md, run verbatim."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.conftest import REPOSITORY
from tests.integration.support import Outbox

from outbox_kit.demo.compare_values import compare
from outbox_kit.demo.report import DemoReport
from outbox_kit.deployment import Deployment

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line.partition("#")[0])[1:] for line in re.findall(r"^\.venv/bin/outbox .*$", README, re.MULTILINE)
]
# Stops the stack that other tests need. tests/integration/stack/test_stack.py tests this command.
EXCLUDED = [["stack", "down", "--purge"]]


def test_readme_shows_commands() -> None:
    assert len(COMMANDS) >= 5
    assert all(command in COMMANDS for command in EXCLUDED)


@pytest.mark.parametrize("command", [item for item in COMMANDS if item not in EXCLUDED], ids=" ".join)
def test_commands_of_the_readme_succeed(outbox: Outbox, library: Deployment, command: list[str]) -> None:
    del library
    done = outbox(*command)
    assert done.code == 0, done.output


def test_readme_table_equals_the_printed_table() -> None:
    report = DemoReport()
    empty_schema = {"fields": []}
    report.comparisons.append(compare("book", "warehouse", schema=empty_schema, source=[], rows=[]))
    table = next(item for item in report.tables() if item.title == "Rows of source and targets")
    assert " ".join(table.headings) in re.sub(r" +", " ", README)
