"""Print the checks of `verify` and `lint`: problems with their remedies first, and passed checks as numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from rich.text import Text

from outbox_common.error_text import printable
from outbox_events.text import plural
from outbox_kit.cli.console import print_fields, print_line, print_message, stdout, wrapped
from outbox_kit.results.checks import Check, Status

STYLES = {Status.FAIL: "bold red", Status.WARN: "yellow", Status.UNKNOWN: "cyan", Status.PASS: "green"}
"""Style of each status, in the order in which checks are printed."""
REFERENCE = re.compile(r"see [a-z]+\.")
"""Beginning of a remedy that only refers to another check."""
LABEL_WIDTH = 9


def print_checks(checks: Iterable[Check], summary: str, *, verbose: bool = False) -> None:
    """Print failed checks, warnings, unknown checks, the number of passed checks of each system, and a summary.

    Unknown checks with the same reason are one line. With `verbose`, print each unknown and passed check.
    """
    by_status: dict[Status, list[Check]] = {status: [] for status in STYLES}
    # A check whose remedy is a reference is a consequence of the check to which it refers.
    for check in sorted(checks, key=lambda check: REFERENCE.match(check.remedy) is not None):
        by_status[check.status].append(check)
    failed, warned, unknown, passed = by_status.values()
    _print_problems([*failed, *warned, *(unknown if verbose else [])])
    _print_lines(Status.UNKNOWN, [] if verbose else _reasons(unknown))
    counts = Counter(check.id.partition(".")[0] for check in passed)
    texts = [f"{system}: {plural(count, 'check')}" for system, count in counts.items()]
    _print_lines(Status.PASS, [f"{check.id}: {check.seen}" for check in passed] if verbose else texts)
    print_message(summary, STYLES[Status.FAIL if failed else Status.WARN if warned else Status.PASS])


def _print_problems(checks: Iterable[Check]) -> None:
    """Print each check with its remedy. A remedy that was already printed is replaced by a reference."""
    ids_by_remedy: dict[str, str] = {}
    for check in checks:
        is_new = not check.remedy or check.remedy not in ids_by_remedy
        first_id = ids_by_remedy.setdefault(check.remedy, check.id)
        remedy = check.remedy if is_new else f"see {first_id}" if first_id != check.id else ""
        _print_lines(check.status, [check.id])
        print_fields([("seen", check.seen), ("expected", check.expected), ("remedy", remedy)], indent=2)


def _reasons(checks: Iterable[Check]) -> Iterator[str]:
    """Yield a line for each reason for which checks are unknown."""
    ids_by_reason: dict[str, list[str]] = {}
    for check in checks:
        ids_by_reason.setdefault(check.seen, []).append(check.id)
    for reason, (first_id, *other_ids) in ids_by_reason.items():
        yield f"{first_id}{f' and {len(other_ids)} more' if other_ids else ''}: {reason}"


def _print_lines(status: Status, lines: Iterable[str]) -> None:
    for line in lines:
        text = wrapped(printable(line), stdout, LABEL_WIDTH)
        print_line(Text.assemble((f"{status:<{LABEL_WIDTH}}", STYLES[status]), text))
