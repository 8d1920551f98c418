"""Hostile words in the console: whatever people, models and tools say is shown as text."""

from andon import Agent, Call, ToolContext, tool
from andon.testing import ScriptedModel
from tests.e2e.conftest import Serve
from tests.e2e.page import HEAD, Page
from tests.e2e.stage import acting

BAD = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
HUGE = 1_000_000
INSIDE = "return document.querySelectorAll('main img, main script, #runs img, #runs script').length"


def test_markup_is_shown_and_not_obeyed(serve: Serve, page: Page) -> None:
    """In prompts, answers, names of tools, arguments, results, questions, reasons and steers."""

    @tool
    async def echo(what: str) -> str:
        """Say it again."""
        return what

    @tool
    async def confirm(what: str, context: ToolContext) -> str:
        """Ask a human."""
        return str(await context.interrupt(what))

    calls = [Call("echo", {"what": BAD}), Call(BAD, {BAD: BAD}, id=BAD)]
    child = Agent(ScriptedModel(BAD), name=BAD).as_tool(name="child", description="A child.")
    model = ScriptedModel([BAD, *calls], Call("child", {"request": BAD}), Call("confirm", {"what": BAD}), BAD)
    stage = serve(acting(model, [echo, child, confirm]))
    page.open(stage.url)
    page.start(BAD)

    page.shows("waits for an answer", HEAD)
    for css in (
        ".head h2",
        ".said",
        ".answer",
        ".call .result",
        ".inside .answer",
        ".answer-form",
        ".prompt",
    ):
        page.shows(BAD, css)
    page.shows(f'({BAD}="', ".call h3 code")
    page.find(".answer-form input").send_keys(BAD)
    page.button("Answer").click()
    page.shows("finished", HEAD)
    page.shows(f"answered: {BAD}", ".note")
    assert page.run(INSIDE) == 0
    assert "owned" not in page.driver.title.replace(BAD[: len(page.driver.title)], "")


def test_a_megabyte_is_shown_in_part_until_it_is_wanted(serve: Serve, page: Page) -> None:
    """The page stays usable, and nothing is wider than it."""

    @tool
    async def dump() -> str:
        """Give far too much."""
        return "<b>" + "x" * HUGE + "</b>"

    stage = serve(acting(ScriptedModel(Call("dump", {}), "y" * HUGE), [dump]))
    page.open(stage.url)
    page.start("Dump it " + "z" * 5_000)
    page.shows("finished", HEAD)

    shown = len(page.text(".call pre"))
    assert shown < 5_000
    page.button("Show all of it", ".call").click()
    page.until(lambda: len(page.text(".call pre")) > HUGE, "the rest did not come")
    assert page.text(".call pre").endswith("</b>")
    assert page.fits()
    page.phone()
    assert page.fits()
