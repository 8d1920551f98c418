"""Chromium: a browser with a profile of its own, which talks to nobody but the tests' server."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
MISSING = (
    "the tests of the console drive a real Chromium, and there is none: install it with its driver "
    "(Debian: apt-get install chromium chromium-driver) so that `chromium` and `chromedriver` are on the PATH"
)


@contextmanager
def chromium(profile: Path) -> Generator[Chrome]:
    """Start a browser, and end it."""
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.fail(MISSING, pytrace=False)
    options = ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()
