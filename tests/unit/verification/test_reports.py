"""Reports as JSON, JUnit XML and HTML, status changes, and docs/verify.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from outbox_kit.results.checks import Check, Severity, Status
from outbox_kit.verification import Report, StatusChanges, to_html, to_json, to_junit
from outbox_kit.verification.report import STAGES, stage_of, worst_status
from outbox_lab.documents import check_catalogue, check_reference

PASSED = Check("kafka.topics", Status.PASS, "all 5", "all 5")
FAILED = Check("postgres.slot", Status.FAIL, "no slot <x> & \x1b[31m", "pgoutput", "`outbox apply --recover`")
WARNED = Check("postgres.free-slots", Status.WARN, "10 of 10", "one free", "drop slots", Severity.WARNING)
UNKNOWN = Check("connect.workers", Status.UNKNOWN, "no worker is listed", "every worker", "list them")
REPORT = Report("library", "local", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), [FAILED, WARNED, PASSED, UNKNOWN])


def test_summary() -> None:
    assert REPORT.summary == "1 failed, 1 warned, 1 unknown, 1 passed"
    assert REPORT.failed
    assert not Report("p", "e", REPORT.started_at, [PASSED, WARNED, UNKNOWN]).failed
    assert worst_status([]) is Status.PASS


def test_json() -> None:
    document = json.loads(json.dumps(to_json(REPORT)))
    assert document["format"] == 1
    assert (document["pipeline"], document["environment"]) == ("library", "local")
    assert document["time"] == "2026-01-02T03:04:05+00:00"
    assert len(document["checks"]) == 4
    assert document["checks"][:1] == [
        {
            "id": "postgres.slot",
            "status": "fail",
            "seen": FAILED.seen,
            "expected": "pgoutput",
            "remedy": "`outbox apply --recover`",
            "severity": "error",
        }
    ]


def test_junit() -> None:
    root = ElementTree.fromstring(to_junit(REPORT))  # noqa: S314 - trusted input
    counts = {"tests": "4", "failures": "1", "errors": "0", "skipped": "1"}
    assert root.tag == "testsuites"
    assert root.attrib == counts
    (suite,) = root
    assert suite.attrib == {"name": "outbox verify library local", "timestamp": "2026-01-02T03:04:05+00:00", **counts}
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == [check.id for check in REPORT.checks]
    assert {case.tag for case in suite} == {"testcase"}
    assert all(case.get("classname") == f"outbox.{str(case.get('name')).split('.')[0]}" for case in suite)
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["system-out"], [], ["skipped"]]
    failure = cases["postgres.slot"][0]
    assert failure.get("message") == "no slot <x> & \\x1b[31m"
    assert failure.text == "seen: no slot <x> & \\x1b[31m\nexpected: pgoutput\nremedy: `outbox apply --recover`"
    assert cases["connect.workers"][0].get("message") == "no worker is listed"


class Page(HTMLParser):
    """Open tags, loaded resources, boxes and text of a page."""

    EMPTY = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.boxes: dict[str, str] = {}
        self.rows: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        actual = dict(attrs)
        urls = [str(actual[key]) for key in ("src", "href") if key in actual]
        self.loaded += [url for url in urls if not url.startswith("#")]
        if tag == "script":
            self.loaded.append("script")
        if "data-stage" in actual:
            self.boxes[str(actual["data-stage"])] = str(actual["data-status"])
        if tag == "section":
            self.rows.append(str(actual["id"]))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html() -> None:
    text = to_html(REPORT)
    page = Page(text)
    assert page.open == []
    assert page.loaded == []
    assert not re.search(r"https?://|url\((?!#)|@import", text)
    assert page.boxes == {
        "outbox table": "pass",
        "slot": "fail",
        "connector": "unknown",
        "topics": "pass",
        "registry": "pass",
    }
    assert page.rows == ["postgres.slot", "postgres.free-slots", "connect.workers", "kafka.topics"], (
        "in the order of severity"
    )
    assert "<x>" not in text
    assert "no slot &lt;x&gt; &amp;" in text
    assert "library in local: 1 failed, 1 warned, 1 unknown, 1 passed" in page.text


@pytest.mark.parametrize("to_text", [to_html, to_junit])
def test_control_and_format_characters_are_escaped(to_text: Callable[[Report], str]) -> None:
    """A key from another system can contain characters that reorder the text of a report, or that XML forbids."""
    characters = "\x00\x07\x1b\x7f\x9b\xad\u200b\u202e\u2028\u2066\u2060\ufeff\uffff\ud800\U000e0041"
    text = f"{characters}\n::error::x"
    checks = [Check("postgres.slot", Status.FAIL, text, text, text), Check("kafka.topics", Status.UNKNOWN, text, text)]
    document = to_text(Report("p", "e", REPORT.started_at, checks))
    assert not set(document) & set(characters)
    assert r"\u202e" in document
    assert not [line for line in document.splitlines() if line.startswith("::")]
    document.encode()


def test_html_lists_each_check_with_its_details() -> None:
    checks = [Check(name, Status.PASS, "s", "e") for name in check_catalogue.IDS if name != "path.schema-ids"]
    page = Page(
        to_html(Report("p", "e", REPORT.started_at, [*checks, Check("path.schema-ids", Status.FAIL, "s", "e", "r")]))
    )
    assert page.boxes == dict.fromkeys(STAGES, "pass") | {"registry": "fail"}
    assert set(page.rows) == set(check_catalogue.IDS)


@pytest.mark.parametrize(
    ("identifier", "stage"),
    [
        ("postgres.table", "outbox table"),
        ("postgres.slot-moving", "slot"),
        ("postgres.publication", "slot"),
        ("connect.running", "connector"),
        ("path.wal-sender-timeout", "connector"),
        ("path.partitions", "topics"),
        ("canary.delivered", "topics"),
        ("path.schema-ids", "registry"),
    ],
)
def test_stages(identifier: str, stage: str) -> None:
    assert stage_of(identifier) == stage
    assert all(stage_of(item) for item in check_catalogue.IDS)


def test_only_status_changes_are_printed() -> None:
    status_changes = StatusChanges()
    assert status_changes.since_last_run([PASSED, FAILED]) == [f"postgres.slot: pass → fail: {FAILED.seen}"]
    assert status_changes.since_last_run([PASSED, FAILED]) == []
    repaired = Check("postgres.slot", Status.PASS, "pgoutput", "pgoutput")
    assert status_changes.since_last_run([PASSED, repaired]) == ["postgres.slot: fail → pass: pgoutput"]
    assert status_changes.since_last_run([UNKNOWN, repaired]) == [
        "connect.workers: pass → unknown: no worker is listed"
    ]


# --- docs/verify.md


def test_ids_are_unique_and_start_with_the_system() -> None:
    assert len(check_catalogue.IDS) == len(set(check_catalogue.IDS))
    assert len(check_catalogue.IDS) >= 30
    systems = ("postgres", "kafka", "registry", "connect", "path", "canary", "states")
    assert [name for name in check_catalogue.IDS if not re.fullmatch(rf"({'|'.join(systems)})\.[a-z-]+", name)] == []


def test_every_remedy_is_run_by_a_test_or_has_a_reason() -> None:
    not_run = [name for names in check_reference.REMEDIES_NOT_RUN.values() for name in names]
    assert sorted([*not_run, *check_reference.REMEDIES_RUN_BY_TESTS]) == sorted(check_catalogue.IDS)


def test_every_check_has_purpose_and_remedy() -> None:
    assert [rule.id for rule in check_catalogue.RULES if not rule.condition or not rule.remedy] == []
