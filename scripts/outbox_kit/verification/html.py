"""HTML form of the report: one page, with a diagram in which each stage has the colour of its status."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from outbox_kit.rules import Check, Status
from outbox_kit.verification.report import WORST_FIRST, Report, worst_status

# Prefixes of check ids by stage. The longest matching prefix determines the stage of a check.
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
    """Box of the diagram. `status` is the worst status of `checks`, `problems` the ids of failed or warned checks."""

    name: str
    status: Status
    problems: list[str]
    checks: list[Check]


def stage_of(check_id: str) -> str:
    """Return the stage that a check belongs to."""
    matches = [
        (len(prefix), name) for name, prefixes in STAGES.items() for prefix in prefixes if check_id.startswith(prefix)
    ]
    return max(matches)[1]


def stages(checks: list[Check]) -> list[Stage]:
    """Return the stages from the outbox table to the registry."""
    result = []
    for name in STAGES:
        stage_checks = [check for check in checks if stage_of(check.id) == name]
        problems = [check.id for check in stage_checks if check.status in (Status.FAIL, Status.WARN)]
        result.append(Stage(name, worst_status(stage_checks), problems, stage_checks))
    return result


def to_html(report: Report) -> str:
    """Return a page without scripts and external resources."""
    loader = PackageLoader("outbox_kit.verification", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    order = list(WORST_FIRST)
    ordered = sorted(report.checks, key=lambda check: order.index(check.status))
    page = jinja.get_template("report.html.j2")
    return page.render(
        report=report, stages=stages(report.checks), ordered=ordered, verdict=worst_status(report.checks)
    )
