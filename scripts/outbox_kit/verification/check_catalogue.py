"""Every check there is, in the order of the report; docs/verify.md is made of it.

`python -m outbox_kit.verification.check_catalogue > docs/verify.md`
"""

from __future__ import annotations

import sys
from typing import Any

from outbox_kit.connect import checks as connect_checks
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.postgres import slot_checks
from outbox_kit.registry import checks as registry_checks
from outbox_kit.rules import Rule
from outbox_kit.verification import canary, cross_checks, progress_checks

INTRODUCTION = """# What `outbox verify` checks

<!-- Made by `python -m outbox_kit.verification.check_catalogue`; a test holds this page against the code. -->

```sh
outbox verify                                   # every check, and a canary through the whole path
outbox verify --no-canary                       # writes nothing anywhere
outbox verify --junit verify.xml --html verify.html   # for CI, and for people
outbox verify --every 60                        # goes on until Ctrl-C, and prints only what changes
```

A report always holds all checks, in this order. Each is `pass`, `fail`, `warn` (nothing is lost, yet) or `unknown` (it
could not be looked at: its system is down, the object that it is about is missing, or nobody told the kit what to
expect). Exit code 1 when a check fails. Ids never change their meaning: alerts may hang on them.

Before the first `outbox apply` there is nothing to check, and verify says so.

The checks log in as `source.verifier` where the environment file names it, else as the owner. The canary needs
INSERT, DELETE and SELECT on the outbox table, or nothing where it is a message; `postgres.partition-field` needs
SELECT. The canary uses its own aggregate type, topic and schema (`outbox-canary`), never a business topic. It arrives
behind everything committed before it, so it also proves that the connector has caught up.

`--output json` prints `{"format": 1, "checks": [{"id", "status", "seen", "expected", "remedy", "severity"}]}`. In JUnit
XML a failed check is a failure, an unknown one is skipped. The HTML page is one file and draws the path.
"""
SECTIONS: list[tuple[str, list[Any]]] = [
    ("Source database", [*postgres_checks.RULES, *slot_checks.RULES]),
    ("Kafka", kafka_checks.RULES),
    ("Schema registry", registry_checks.RULES),
    ("Kafka Connect", connect_checks.RULES),
    ("One system against another", cross_checks.RULES),
    ("What must move between two looks", progress_checks.RULES),
    ("Canary", canary.RULES),
]
RULES: list[Rule[Any]] = [each for _, rules in SECTIONS for each in rules]
IDS = [each.id for each in RULES]


def page() -> str:
    """docs/verify.md as Markdown."""
    parts = [INTRODUCTION]
    for title, rules in SECTIONS:
        rows = [f"| `{r.id}` | {r.severity.value} | {_cell(r.guards)} | {_cell(r.remedy)} |\n" for r in rules]
        head = "| id | severity | what it guards | when it fails |\n|---|---|---|---|\n"
        parts.append(f"## {title}\n\n{head}{''.join(rows)}")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(page())
