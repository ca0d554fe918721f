"""Print the checks of `verify` and `lint`: problems with their remedies first, and passed checks as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.text import Text

from outbox_common.error_text import printable
from outbox_events.text import plural
from outbox_kit.cli.console import print_fields, print_line, stdout, wrapped
from outbox_kit.results.checks import Check, Status

STYLES = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.UNKNOWN: "cyan"}
REFERENCE = "see "
LABEL_WIDTH = 9


def print_checks(checks: Iterable[Check], *, verbose: bool = False) -> None:
    """Print failed checks, warnings, unknown checks, and the number of passed checks of each system.

    Unknown checks with the same reason are one line. With `verbose`, print each unknown and passed check.
    """
    by_status: dict[Status, list[Check]] = {status: [] for status in STYLES}
    # A check whose remedy is a reference is a consequence of the check to which it refers.
    for check in sorted(checks, key=lambda check: check.remedy.startswith(REFERENCE)):
        by_status[check.status].append(check)
    unknown, passed = by_status.pop(Status.UNKNOWN), by_status.pop(Status.PASS)
    _print_problems([*by_status[Status.FAIL], *by_status[Status.WARN], *(unknown if verbose else [])])
    if verbose:
        _print_lines(Status.PASS, [f"{check.id}: {check.seen}" for check in passed])
        return
    _print_lines(Status.UNKNOWN, _reasons(unknown))
    counts = Counter(check.id.partition(".")[0] for check in passed)
    _print_lines(Status.PASS, [f"{system}: {plural(count, 'check')}" for system, count in counts.items()])


def _print_problems(checks: Iterable[Check]) -> None:
    """Print each check with its remedy. A remedy that was already printed is replaced by a reference."""
    ids_by_remedy: dict[str, str] = {}
    for check in checks:
        first_id = ids_by_remedy.get(check.remedy)
        remedy = check.remedy if first_id is None else f"{REFERENCE}{first_id}" if first_id != check.id else ""
        ids_by_remedy.setdefault(check.remedy, check.id)
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
