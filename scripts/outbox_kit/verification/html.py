"""HTML form of the report: one page with a diagram of the stages, then the checks, those that did not pass first."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from outbox_kit.results.checks import Check, Status
from outbox_kit.verification.report import STATUSES_WORST_FIRST, Report, worst_status

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
    "topics": ("kafka.", "path.partitions", "path.record-size", "canary.", "states."),
    "registry": ("registry.", "path.schema-ids"),
}

BACKQUOTED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Stage:
    """Box of the diagram, with the worst status of its checks, and the ids of its checks with status FAIL or WARN."""

    name: str
    status: Status
    problem_ids: list[str]
    checks: list[Check]


def stage_of(check_id: str) -> str:
    """Return the name of the stage to which a check belongs."""
    matches = [
        (len(prefix), name) for name, prefixes in STAGES.items() for prefix in prefixes if check_id.startswith(prefix)
    ]
    return max(matches)[1]


def stages(checks: list[Check]) -> list[Stage]:
    """Return every stage with its checks, from the outbox table to the registry."""
    result = []
    for name in STAGES:
        stage_checks = [check for check in checks if stage_of(check.id) == name]
        problem_ids = [check.id for check in stage_checks if check.status in (Status.FAIL, Status.WARN)]
        result.append(Stage(name, worst_status(stage_checks), problem_ids, stage_checks))
    return result


def to_html(report: Report) -> str:
    """Return the report as one HTML page, without scripts and external resources."""
    loader = PackageLoader("outbox_kit.verification", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters["commands"] = commands
    groups = {
        name: [check for check in report.checks if check.status is status]
        for status, name in STATUSES_WORST_FIRST.items()
    }
    return jinja.get_template("report.html.j2").render(
        report=report, stages=stages(report.checks), groups=groups, verdict=worst_status(report.checks)
    )


def commands(text: str) -> Markup:
    """Return the text as HTML, with each command in backquotes as a code element."""
    return Markup(BACKQUOTED.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped
