"""Ways to use the console: by keyboard alone, on a phone, in the dark, with a token."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium.webdriver import Keys

from andon import Call, ToolContext, tool
from andon.serve.keys import new_key
from andon.testing import Gate, ScriptedModel
from tests.e2e.conftest import Serve
from tests.e2e.page import HEAD, Page
from tests.e2e.stage import ANYWHERE, acting

FOCUSED = """
const at = document.activeElement;
return at.matches('a, button, summary') ? at.textContent : at.name || '';
"""
CONTRAST = """
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255);
  return [r, g, b].map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
};
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (colour !== 'rgba(0, 0, 0, 0)') return colour;
  }
  return 'rgb(255, 255, 255)';
};
const bad = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || !element.checkVisibility() || element.closest('option')) continue;
  const both = [luminance(getComputedStyle(element).color), luminance(behind(element))];
  const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  if (ratio < 4.5) bad.push(`${ratio.toFixed(2)}: ${element.outerHTML}`);
}
return bad;
"""
NAMELESS = """
return [...document.querySelectorAll('input, select, textarea, button, summary, a')]
  .filter((one) => one.checkVisibility() && !(one.ariaLabel || one.labels?.length || one.innerText.trim()))
  .map((one) => one.outerHTML);
"""


@tool
async def confirm(what: str, context: ToolContext) -> str:
    """Ask a human."""
    return f"said: {await context.interrupt(f'Shall I book {what}?')}"


def focus(page: Page, words: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(20):
        if words in str(page.run(FOCUSED)):
            return
        page.press(Keys.TAB)
    raise AssertionError(f"Tab does not lead to {words!r}")


def test_everything_can_be_done_by_keyboard(serve: Serve, page: Page) -> None:
    """A run is begun, steered, cancelled from the menu, and another is chosen in the list."""
    gate = Gate()
    stage = serve(acting(ScriptedModel("Done.", ["One ", Gate()], ["Two ", gate, "."])))
    stage.push("the first")
    page.open(stage.url)
    page.shows("finished", "#runs .state")

    focus(page, "New run")
    page.press(Keys.ENTER)
    page.find("dialog textarea")
    page.press("the second")
    page.chord(Keys.CONTROL, Keys.ENTER)
    page.shows("One", ".answer.live")

    focus(page, "Cancel")
    page.press(Keys.TAB, "only this", Keys.ENTER)
    page.shows("Said.", ".told")
    focus(page, "Cancel")
    page.press(Keys.ENTER)
    page.until(lambda: page.run(FOCUSED) == "Now", "the menu has not the focus")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert page.run(FOCUSED) == "After the tools"
    page.press(Keys.ESCAPE)
    assert page.run(FOCUSED) == "Cancel ▾"
    page.hides(".panel")
    page.press(Keys.ENTER)
    page.until(lambda: page.run(FOCUSED) == "Now", "the menu has not the focus")
    page.press(Keys.ENTER)
    page.shows("cancelled", HEAD)

    page.shows("the second", "#runs .prompt")
    focus(page, "the second")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.shows("the first", ".head h2")
    page.press(Keys.HOME, Keys.ENTER)
    page.shows("the second", ".head h2")


def test_a_dialog_is_left_with_escape(serve: Serve, page: Page) -> None:
    """The focus is then where it was, and nothing was begun."""
    stage = serve(acting(ScriptedModel()))
    page.open(stage.url)
    focus(page, "New run")
    page.press(Keys.ENTER)
    page.find("dialog textarea")
    page.press("never mind", Keys.ESCAPE)

    page.hides("dialog")
    assert page.run(FOCUSED) == "New run"
    page.shows("No runs to show.", "#count")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("small", [False, True], ids=["desk", "phone"])
def test_every_state_can_be_read_and_fits(
    serve: Serve, page: Page, tmp_path: Path, scheme: str, *, small: bool
) -> None:
    """Words have a contrast of 4.5 at least, everything to use has a name, nothing is wider than the page."""
    confirmed = Call("confirm", {"what": "the 9:39 " + "to-the-other-end-of-the-country" * 5})
    gate = Gate()
    stage = serve(acting(ScriptedModel(["Let me see. ", gate, confirmed], "It is booked."), [confirm]))
    page.scheme(scheme)
    if small:
        page.phone()
    page.open(stage.url)

    def look(name: str) -> None:
        (tmp_path / f"{name}.png").write_bytes(page.driver.get_screenshot_as_png())
        assert page.fits(), name
        assert page.run(CONTRAST) == [], name
        assert page.run(NAMELESS) == [], name

    look("nothing")
    page.find("#new-run").click()
    page.find("dialog textarea")
    look("new")
    page.press(Keys.ESCAPE)
    page.start("Book the train " + "and-then-some" * 20)
    page.shows("Let me see.", ".answer.live")
    look("streams")
    page.find(".menu summary").click()
    page.find(".panel")
    look("menu")
    page.press(Keys.ESCAPE)
    gate.open()
    page.shows("waits for an answer", HEAD)
    page.find(".answer-form")
    look("asks")
    page.cancel("Now", reason="too dear")
    page.shows("cancelled", HEAD)
    look("cancelled")
    page.open(stage.url)
    page.shows("1 run", "#count")
    look("list")


def test_a_server_that_wants_a_token_is_given_one(serve: Serve, page: Page, tmp_path: Path) -> None:
    """A wrong one is asked for again; who dismisses the dialog is left alone, and can change their mind."""
    page.expected = "status of 401"
    token, line = new_key("ann-laptop", ["run", "cancel", "read"], "ann")
    path = tmp_path / "keys"
    path.write_text(f"{line}\n")
    stage = serve(acting(ScriptedModel(["Once upon ", Gate()])), replace(ANYWHERE, keys=path))
    run_id = stage.push("Tell a story")
    page.open(stage.url)
    page.find("dialog [name=token]")
    page.press(Keys.ESCAPE)
    page.shows("needs a token", "#health")
    page.refreshed()
    page.hides("dialog")

    page.button("Give a token").click()
    page.find("dialog [name=token]").send_keys("andon_wrong" + Keys.ENTER)
    page.shows("nobody has this token", "dialog")
    page.find("dialog [name=token]").send_keys(token + Keys.ENTER)
    page.find("#runs a").click()
    page.shows("Once upon", ".answer.live")
    page.cancel("Now")

    page.shows("user ann-laptop", ".ending")
    assert stage.row(run_id).state == "cancelled"
    page.driver.refresh()
    page.shows("cancelled", HEAD)
