"""The HTML page of `python -m outbox_lab.drill --report` in a browser: on a desktop, on a phone, and printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.browser.conftest import Page
from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of

from outbox_lab.drill.faults import FAULTS
from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.receivers.effects import count_effects
from outbox_lab.drill.receivers.strategies import STRATEGIES
from outbox_lab.drill.reporting.report import Cost, to_html
from outbox_lab.drill.ways.catalogue import WAYS

pytestmark = pytest.mark.browser

LEDGER = ledger_of(("a", 1, Outcome.COMMITTED), ("b", 2, Outcome.COMMITTED))
MINIMUM_FONT_PX = 12
A4_WIDTH, DESKTOP_WIDTH, PHONE_WIDTH = 794, 1280, 390


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    delivered = deliveries_of("a", "b")
    effects = tuple(count_effects(strategy, LEDGER, deliveries_of("a", "a"), delivered) for strategy in STRATEGIES)
    results = [
        result_of(
            way.name,
            fault,
            LEDGER,
            deliveries_of("a"),
            note="x" * 200,
            recovery_s=[12.5],
            effects=effects,
            lost_by_fault=() if fault == "none" else (1000,),
            phantom_by_fault=() if fault == "none" else (1000,),
            load={"rate": 60, "writers": 4},
        )
        for way in WAYS.values()
        for fault in FAULTS
        if fault in way.faults
    ]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(to_html(results, Cost(1_000_000, 1_000_000)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "media"), [(DESKTOP_WIDTH, "screen"), (PHONE_WIDTH, "screen"), (A4_WIDTH, "print")])
def test_text_fits_the_page(browser: Chrome, report: Path, width: int, media: str) -> None:
    page = Page(browser, report, width, media=media)
    assert page.hidden_width == 0
    hidden = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(hidden) == 0


@pytest.mark.parametrize("width", [DESKTOP_WIDTH, PHONE_WIDTH])
def test_text_is_readable(browser: Chrome, report: Path, width: int) -> None:
    page = Page(browser, report, width)
    assert float(str(page.smallest_text())) >= MINIMUM_FONT_PX


def test_every_chart_is_drawn(browser: Chrome, report: Path) -> None:
    page = Page(browser, report, DESKTOP_WIDTH)
    empty = "[...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().height < 40).length"
    assert page.evaluate(empty) == 0
    assert page.evaluate("document.querySelectorAll('svg .fault').length > 0")
