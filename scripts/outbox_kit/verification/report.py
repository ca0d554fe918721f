"""Convert the result of a `verify` run to JSON, to JUnit XML, and to an HTML page with a diagram of the stages."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from outbox_common.error_text import printable
from outbox_kit.results.checks import Check, Status

# Prefixes of check ids for each stage. The longest matching prefix determines the stage of a check.
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
FORMAT = 1
"""Version of the JSON format. The version is incremented when a key is removed or changes its meaning."""

STATUSES_WORST_FIRST = {Status.FAIL: "failed", Status.WARN: "warned", Status.UNKNOWN: "unknown", Status.PASS: "passed"}


@dataclass(frozen=True)
class Report:
    """Checks of one pipeline in one environment, from one run of `verify`."""

    pipeline: str
    environment: str
    started_at: datetime
    checks: list[Check]

    @property
    def failed(self) -> bool:
        """Whether a check failed. Warnings and unknown checks do not count."""
        return worst_status(self.checks) is Status.FAIL

    @property
    def summary(self) -> str:
        """Number of checks with each status, such as `2 failed, 1 unknown, 60 passed`."""
        counts = Counter(check.status for check in self.checks)
        return ", ".join(f"{counts[status]} {name}" for status, name in STATUSES_WORST_FIRST.items() if counts[status])


def worst_status(checks: list[Check]) -> Status:
    """Return the worst status of the checks, or PASS for an empty list."""
    statuses = {check.status for check in checks}
    return next((status for status in STATUSES_WORST_FIRST if status in statuses), Status.PASS)


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as a JSON object, with the time at which the run started."""
    return {
        "format": FORMAT,
        "pipeline": report.pipeline,
        "environment": report.environment,
        "time": report.started_at.isoformat(timespec="seconds"),
        "checks": [dataclasses.asdict(check) for check in report.checks],
    }


class StatusChanges:
    """Compares the statuses in consecutive runs of `outbox verify --every`."""

    def __init__(self) -> None:
        self._previous_statuses: dict[str, Status] = {}

    def since_last_run(self, checks: list[Check]) -> list[str]:
        """Return a line for each check whose status changed or, in the first run, for each check that did not pass."""
        lines = []
        for check in checks:
            previous_status = self._previous_statuses.get(check.id, Status.PASS)
            if check.status is not previous_status:
                lines.append(f"{check.id}: {previous_status} → {check.status}: {check.seen}")
        self._previous_statuses = {check.id: check.status for check in checks}
        return lines


def to_junit(report: Report) -> str:
    """Return a JUnit test suite. Failed checks are failures, unknown checks are skipped, and warnings pass."""
    statuses = [check.status for check in report.checks]
    counts = {
        "tests": str(len(statuses)),
        "failures": str(statuses.count(Status.FAIL)),
        "errors": "0",
        "skipped": str(statuses.count(Status.UNKNOWN)),
    }
    root = ElementTree.Element("testsuites", counts)
    name = f"outbox verify {report.pipeline} {report.environment}"
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": name, "timestamp": report.started_at.isoformat(timespec="seconds"), **counts}
    )
    for check in report.checks:
        _add_case(suite, check)
    ElementTree.indent(root)
    return printable(ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"


def _add_case(suite: ElementTree.Element, check: Check) -> None:
    system = check.id.partition(".")[0]
    case = ElementTree.SubElement(suite, "testcase", {"classname": f"outbox.{system}", "name": check.id, "time": "0"})
    text = f"seen: {check.seen}\nexpected: {check.expected}\nremedy: {check.remedy}"
    if check.status is Status.FAIL:
        ElementTree.SubElement(case, "failure", {"message": check.seen, "type": check.severity.value}).text = text
    elif check.status is Status.UNKNOWN:
        ElementTree.SubElement(case, "skipped", {"message": check.seen})
    elif check.status is Status.WARN:
        ElementTree.SubElement(case, "system-out").text = text


@dataclass(frozen=True)
class Stage:
    """Box in the diagram, with the worst status of the stage's checks, and the ids of checks that are FAIL or WARN."""

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
    """Return the report as one HTML page without scripts or external resources."""
    loader = PackageLoader("outbox_kit.verification", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters["commands"] = commands
    groups = {
        name: [check for check in report.checks if check.status is status]
        for status, name in STATUSES_WORST_FIRST.items()
    }
    return printable(
        jinja.get_template("report.html.j2").render(
            report=report, stages=stages(report.checks), groups=groups, verdict=worst_status(report.checks)
        )
    )


def commands(text: str) -> Markup:
    """Return the text as HTML, with each command in backquotes as a code element."""
    return Markup(BACKQUOTED.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped
