"""Headless Chromium, for tests of the HTML pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

# Chromium must not open connections by itself, because each is delayed on a machine without internet access.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSTALL_HINT = "scripts/prerequisites.sh browser"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Yield a browser. If Chromium is missing, the tests are skipped, but in CI they fail."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = f"Chromium or ChromeDriver is not installed; run {INSTALL_HINT}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    chrome = Chrome(options, Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


class Page:
    """A page in the browser, at the width of a window in CSS pixels."""

    def __init__(self, browser: Chrome, path: Path, width: int, height: int = 800, *, media: str = "screen") -> None:
        self.browser = browser
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
        browser.get(path.as_uri())

    def evaluate(self, expression: str) -> object:
        """Return the value of a JavaScript expression."""
        return self.browser.execute_script(f"return {expression}")  # type: ignore[no-any-return]

    def texts(self, selector: str) -> list[str]:
        """Return the visible text of each element."""
        return [element.text for element in self.browser.find_elements("css selector", selector)]

    @property
    def hidden_width(self) -> object:
        """Width of the content that a reader must scroll sideways to see, in CSS pixels."""
        return self.evaluate("Math.max(0, document.documentElement.scrollWidth - window.innerWidth)")

    def wrapped(self, selector: str) -> object:
        """Return the text of each inline element that occupies more than one line."""
        return self.evaluate(
            f"[...document.querySelectorAll({selector!r})].filter(e => e.getClientRects().length > 1)"
            ".map(e => e.textContent)"
        )

    def smallest_text(self) -> object:
        """Return the smallest font size of an element with text, in CSS pixels."""
        return self.evaluate(
            "Math.min(...[...document.body.querySelectorAll('*')].filter(e => e.checkVisibility())"
            ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
