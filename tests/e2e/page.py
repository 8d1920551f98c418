"""Page: the console in a browser, as somebody who looks at it and types."""

import re
from collections.abc import Callable
from typing import cast

from selenium.common import TimeoutException
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 20.0  # seconds: only a failing test waits so long
LOOK = 0.02
HEAD = ".head .state"
TEXT = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join('\\n')"
FITS = "const page = document.documentElement; return page.scrollWidth <= page.clientWidth"
LOOKS = """
const all = performance.getEntriesByType('resource');
return all.filter((one) => one.name.includes('/runs?')).length;
"""
NOTHING_HERE = "about:blank"


class Page:
    """A tab with the console; what went wrong in it is known to the browser's log."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self.expected = "^$"  # what of the log is no error, as a pattern

    def open(self, url: str, run_id: str | None = None) -> None:
        """Look at the list, or at a run."""
        self.driver.get(url if run_id is None else f"{url}#/runs/{run_id}")

    def leave(self) -> None:
        """Look away, and say whether anything went wrong."""
        self.driver.get(NOTHING_HERE)
        self.devtools("Emulation.clearDeviceMetricsOverride")
        self.scheme("light")
        assert self.errors() == []

    def errors(self) -> list[str]:
        """Say what the browser's console has of errors since this was asked last."""
        entries = cast("list[dict[str, str]]", self.driver.get_log("browser"))  # pyright: ignore[reportUnknownMemberType]
        said = [one["message"] for one in entries if one["level"] == "SEVERE"]
        return [one for one in said if not re.search(self.expected, one)]

    # Looking

    def text(self, css: str = "main") -> str:
        """Say what can be read there now."""
        return str(self.run(TEXT, css))

    def run(self, script: str, *given: object) -> object:
        """Run a script in the page."""
        return cast("object", self.driver.execute_script(script, *given))  # pyright: ignore[reportUnknownMemberType]

    def result(self, script: str, *given: object) -> object:
        """Run a script in the page that calls its last argument with its result, and wait for that."""
        return cast("object", self.driver.execute_async_script(script, *given))  # pyright: ignore[reportUnknownMemberType]

    def until(self, ready: Callable[[], object], what: str) -> None:
        """Wait until something is so."""
        try:
            WebDriverWait(self.driver, PATIENCE, poll_frequency=LOOK).until(lambda _: ready())
        except TimeoutException:
            seen = f"there is:\n{self.text('body')[-3_000:]}\nand the log has {self.errors()}"
            raise AssertionError(f"{what}; {seen}") from None

    def shows(self, words: str, css: str = "main") -> None:
        """Wait until words can be read there."""
        self.until(lambda: words in self.text(css), f"{words!r} never came in {css}")

    def hides(self, css: str) -> None:
        """Wait until nothing of this can be seen."""
        self.until(lambda: not self.text(css), f"{css} did not go")

    def find(self, css: str) -> WebElement:
        """Wait for the first that can be seen of these."""
        found: list[WebElement] = []

        def look() -> bool:
            all_of_it = self.driver.find_elements(By.CSS_SELECTOR, css)
            found[:] = [one for one in all_of_it if one.is_displayed()]
            return bool(found)

        self.until(look, f"{css} is not to be seen")
        return found[0]

    def refreshed(self, times: int = 2) -> None:
        """Wait until the page has asked for the list so many times more."""
        before = cast("int", self.run(LOOKS))
        self.until(lambda: cast("int", self.run(LOOKS)) >= before + times, "the list is not looked at again")

    @property
    def run_id(self) -> str:
        """The run that is looked at."""
        return self.driver.current_url.rpartition("/")[2]

    def fits(self) -> bool:
        """Say whether nothing is wider than the page."""
        return bool(self.run(FITS))

    # Doing

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def chord(self, modifier: str, key: str) -> None:
        """Press a key while another is held down."""
        ActionChains(self.driver).key_down(modifier).send_keys(key).key_up(modifier).perform()

    def button(self, name: str, css: str = "body") -> WebElement:
        """Find the button of that name."""
        self.until(lambda: self._named(name, css), f"there is no button {name}")
        found = self._named(name, css)
        assert found is not None
        return found

    def _named(self, name: str, css: str) -> WebElement | None:
        buttons = self.driver.find_elements(By.CSS_SELECTOR, f"{css} button")
        return next((one for one in buttons if one.is_displayed() and one.text == name), None)

    def start(self, prompt: str) -> str:
        """Begin a run as a person does; gives its id."""
        self.find("#new-run").click()
        self.find("dialog textarea").send_keys(prompt)
        self.button("Start").click()
        self.find(HEAD)
        return self.run_id

    def cancel(self, way: str, *, reason: str = "", grace: float | None = None) -> None:
        """Ask for a stop through the menu."""
        self.find(".menu summary").click()
        self.find(".panel [name=reason]").send_keys(reason)
        if grace is not None:
            self.find(".panel [name=grace]").send_keys(str(grace))
        self.button(way, ".panel").click()

    def choose(self, css: str, name: str) -> None:
        """Choose from a list."""
        Select(self.find(css)).select_by_visible_text(name)

    def steer(self, words: str, when: str) -> None:
        """Say something to the run that is live."""
        Select(self.find(".verb select")).select_by_value(when)
        self.find(".verb input").send_keys(words + Keys.ENTER)

    # How it is looked at

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def phone(self) -> None:
        """Be 390 pixels wide."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True
        )

    def devtools(self, command: str, **given: object) -> dict[str, object]:
        """Ask the browser itself for something."""
        return self.driver.execute_cdp_cmd(command, given)  # pyright: ignore[reportUnknownMemberType]
