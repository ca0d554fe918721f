"""docs/lint.md, made from the rules: `python -m outbox_kit.linting.generated_docs > docs/lint.md`."""

from __future__ import annotations

import sys

from outbox_kit.linting.engine import RULES
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule

INTRODUCTION = """# outbox lint

<!-- Made by `python -m outbox_kit.linting.generated_docs`; a test holds this page against the rules. -->

Judges pipeline files before anything is reached: no network, no secret, no running stack.

    outbox lint                                      # the pipeline file of -p, in the environment of -e
    outbox lint -e production connectors/*.yaml      # several files together: nothing may be theirs twice
    outbox lint --connect                            # also ask a Connect worker which keys its plugins know
    outbox lint --strict                             # a warning fails, too
    outbox lint --output json                        # {"checks": [{id, status, seen, expected, remedy, severity}]}

Exit code 1 when a rule is broken; warnings alone do not fail. Without a table of findings every rule holds. In
JSON each rule has a check: one that passed, or one for each place where it is broken. Ids never change their
meaning.

The rules look at the *rendered* connector config and at the topics that `outbox apply` would make, so a template of
your own is judged as ours are. What differs with the transform (converters of the chain and of EventRouter, topics
by pattern) is decided by `transforms.*.type`. Environment variables need not be set; something harmless stands in
for each.

`outbox plan` and `outbox apply` refuse what is an error here, but for `materialization.target`: only the jobs use
the targets, and who applies need not hold their passwords.

## One size

`connector.max_record_bytes` of the environment file sets every size along a record's path; the rules named `size.*`
hold overrides against it.

| setting | value |
|---|---|
| `max.record.bytes` of OutboxRouter | `max_record_bytes`; a larger row is a dead letter |
| `producer.override.max.request.size` | `max_record_bytes` + 64 KiB of framing |
| `producer.override.buffer.memory` | four of those, 32 MiB at least |
| `producer.override.batch.size` | 128 KiB, or `max.request.size` if that is less |
| `max.message.bytes` of each topic | `max_record_bytes` + 64 KiB |

## Rules

A rule with severity `warning` does not fail the command without `--strict`.

| id | the rule is that | why | severity |
|---|---|---|---|
"""


def page() -> str:
    """The whole page as Markdown."""
    rules = [*RULES, unknown_keys_rule(lambda _: ())]
    rows = [f"| `{rule.id}` | {_cell(rule.demands)} | {_cell(rule.why)} | {rule.severity} |\n" for rule in rules]
    return INTRODUCTION + "".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
