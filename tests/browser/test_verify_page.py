"""The HTML page of `outbox verify` in a browser: on a desktop, on a phone, and printed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.browser.conftest import Page

from outbox_kit.results.checks import Check, Severity, Status
from outbox_kit.verification import Report, to_html
from outbox_lab.documents import check_catalogue

pytestmark = pytest.mark.browser

LONG_NAME = "production.warehouse.inventory-adjustments-by-location.state." * 3
FAILED = Check("postgres.slot", Status.FAIL, "no slot <b>shop</b>", "pgoutput", "run `outbox apply --recover`")
WARNED = Check("kafka.topic-settings", Status.WARN, LONG_NAME, "as declared", "run `outbox apply`", Severity.WARNING)
MINIMUM_FONT_PX = 12
A4_WIDTH, DESKTOP_WIDTH, PHONE_WIDTH = 794, 1280, 390


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problems = {check.id: check for check in (FAILED, WARNED)}
    passed = {name: Check(name, Status.PASS, "as declared", "as declared") for name in check_catalogue.IDS}
    checks = list((passed | problems).values())
    path = tmp_path_factory.mktemp("page") / "verify.html"
    path.write_text(to_html(Report("shop", "production", datetime(2026, 1, 2, tzinfo=UTC), checks)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "media"), [(DESKTOP_WIDTH, "screen"), (PHONE_WIDTH, "screen"), (A4_WIDTH, "print")])
def test_text_fits_the_page(browser: Chrome, report: Path, width: int, media: str) -> None:
    page = Page(browser, report, width, media=media)
    assert page.hidden_width == 0
    assert page.wrapped(".status") == []
    assert page.smallest_text() >= MINIMUM_FONT_PX  # type: ignore[operator]
    page.evaluate("document.querySelector('details').open = true")
    assert page.hidden_width == 0


def test_failed_check_and_its_remedy_are_visible_first(browser: Chrome, report: Path) -> None:
    page = Page(browser, report, DESKTOP_WIDTH)
    first = page.evaluate("document.querySelector('.check').id")
    assert first == "postgres.slot"
    assert page.evaluate("document.querySelector('.check').getBoundingClientRect().bottom < window.innerHeight")
    assert page.texts(".check .remedy code")[0] == "outbox apply --recover"
    assert "no slot <b>shop</b>" in page.texts(".check")[0]


def test_passed_checks_are_folded_until_selected(browser: Chrome, report: Path) -> None:
    page = Page(browser, report, DESKTOP_WIDTH)
    assert [text for text in page.texts(".check.pass") if text] == []
    browser.find_element("css selector", "summary").click()
    assert len([text for text in page.texts(".check.pass") if text]) == len(check_catalogue.IDS) - 2


def test_stage_links_to_its_failed_check(browser: Chrome, report: Path) -> None:
    page = Page(browser, report, PHONE_WIDTH)
    browser.find_element("css selector", "[data-stage='slot'] a").click()
    assert page.evaluate("document.querySelector(':target').id") == "postgres.slot"
    assert page.evaluate("document.querySelector(':target').getBoundingClientRect().bottom <= window.innerHeight")
