"""The report as one HTML page, with the path drawn and coloured: a stranger sees where it is broken."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from outbox_kit.rules import Check, Status
from outbox_kit.verification.report import WORST, Report, worst

# Where on the path a check stands: the longest beginning of its id that is named here.
STAGES: dict[str, tuple[str, ...]] = {
    "outbox table": ("postgres.",),
    "slot": (
        "postgres.publication",
        "postgres.slot",
        "postgres.free-",
        "postgres.idle-slot-timeout",
        "postgres.prepared-transactions",
    ),
    "connector": ("connect.", "path."),
    "topics": ("kafka.", "path.partitions", "path.record-size", "canary."),
    "registry": ("registry.", "path.schema-ids"),
}


@dataclass(frozen=True)
class Stage:
    """One box of the drawing."""

    name: str
    status: Status
    bad: list[str]
    checks: list[Check]


def stage_of(identifier: str) -> str:
    """The box that a check belongs to."""
    fitting = [(len(head), name) for name, heads in STAGES.items() for head in heads if identifier.startswith(head)]
    return max(fitting)[1]


def stages(checks: list[Check]) -> list[Stage]:
    """The boxes from the outbox table to the registry."""
    found = []
    for name in STAGES:
        mine = [check for check in checks if stage_of(check.id) == name]
        bad = [check.id for check in mine if check.status in (Status.FAIL, Status.WARN)]
        found.append(Stage(name, worst(mine), bad, mine))
    return found


def to_html(report: Report) -> str:
    """A self-contained page: no script, nothing loaded from elsewhere."""
    loader = PackageLoader("outbox_kit.verification", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    ordered = sorted(report.checks, key=lambda check: WORST.index(check.status))
    page = jinja.get_template("report.html.j2")
    return page.render(report=report, stages=stages(report.checks), ordered=ordered, verdict=worst(report.checks))
