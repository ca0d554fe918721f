"""The documentation site in a browser: it builds without warnings, fits a desktop and a phone, and can be searched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait
from tests.browser.conftest import Page
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.browser

DESKTOP_WIDTH, PHONE_WIDTH = 1280, 390
WAIT_S = 30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site. A link to a page or heading that does not exist is a warning, with which the build fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-b", "html", "docs", folder]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("width", [DESKTOP_WIDTH, PHONE_WIDTH])
def test_pages_fit_the_window(browser: Chrome, site: Path, width: int) -> None:
    pages = sorted(path.relative_to(site) for path in site.rglob("*.html") if path.parent.name != "decisions")
    assert Path("tutorial/existing-database.html") in pages
    wide = {str(path): Page(browser, site / path, width).hidden_width for path in pages}
    assert {path: hidden for path, hidden in wide.items() if hidden} == {}


def test_every_page_is_in_the_navigation(browser: Chrome, site: Path) -> None:
    page = Page(browser, site / "index.html", DESKTOP_WIDTH)
    links = page.evaluate("[...document.querySelectorAll('.sidebar-tree a')].map(a => a.getAttribute('href'))")
    sources = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").glob("*.md")}
    sources |= {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs" / "tutorial").glob("*.md")}
    assert {str(path.with_suffix(".html")) for path in sources} - {"index.html"} <= set(links)  # type: ignore[call-overload]


def test_finds_pages(browser: Chrome, site: Path) -> None:
    page = Page(browser, site / "search.html", DESKTOP_WIDTH)
    browser.get(f"{(site / 'search.html').as_uri()}?q=tombstone")
    WebDriverWait(browser, WAIT_S).until(lambda _: "Materialization" in " ".join(page.texts("#search-results li a")))
