"""JUnit XML form of the report: one test case per check."""

from __future__ import annotations

from xml.etree import ElementTree

from outbox_kit.results.checks import Check, Status
from outbox_kit.verification.report import Report


def to_junit(report: Report) -> str:
    """Return one test suite. A failed check is a failure, an unknown one is skipped, a warning passes with output."""
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
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, check: Check) -> None:
    system = check.id.partition(".")[0]
    case = ElementTree.SubElement(suite, "testcase", {"classname": f"outbox.{system}", "name": check.id, "time": "0"})
    message = _printable(check.seen)
    text = _printable(f"seen: {check.seen}\nexpected: {check.expected}\nremedy: {check.remedy}")
    if check.status is Status.FAIL:
        ElementTree.SubElement(case, "failure", {"message": message, "type": check.severity.value}).text = text
    elif check.status is Status.UNKNOWN:
        ElementTree.SubElement(case, "skipped", {"message": message})
    elif check.status is Status.WARN:
        ElementTree.SubElement(case, "system-out").text = text


def _printable(text: str) -> str:
    """Remove characters that are not printable, because XML does not allow control characters."""
    return "".join(character for character in text if character.isprintable() or character == "\n")
