"""Cancelling in the console: each way to stop, what the report says, and nothing before it is so."""

from typing import Any

import pytest

from andon import Call, tool
from andon.runtime.tools import Tool
from andon.testing import Gate, ScriptedModel
from tests.e2e.conftest import Serve
from tests.e2e.page import HEAD, Page
from tests.e2e.stage import acting

LOOK = Call("look", {"at": "the sea"})


def waiting(gate: Gate) -> Tool[..., Any]:
    """Make a tool that waits at a gate."""

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        await gate
        return f"{at} is calm"

    return look


def test_now_cuts_the_model_and_tells_who_asked_and_why(serve: Serve, page: Page) -> None:
    """What came of the answer stays, marked as cut."""
    gate = Gate()
    stage = serve(acting(ScriptedModel(["Once upon ", gate, "a time"])))
    page.open(stage.url)
    run_id = page.start("Tell a story")
    page.shows("Once upon")

    page.cancel("Now", reason="I know it already")

    page.shows("cancelled", HEAD)
    page.shows("in a model call, which was cut", ".ending")
    page.shows("user local: “I know it already” (asked for: now)", ".ending")
    page.shows("Once upon", ".answer.cut")
    page.shows("Result: stopped, as asked", ".told")
    page.shows("cancelled", "#runs .state")
    assert "a time" not in page.text()
    assert stage.row(run_id).state == "cancelled"


def test_after_the_model_lets_the_answer_end_and_starts_no_tool(serve: Serve, page: Page) -> None:
    """Until the answer is complete, the page says that the run is stopping."""
    gate = Gate()
    stage = serve(acting(ScriptedModel(["Let me ", gate, "see.", LOOK]), [waiting(Gate(opened=True))]))
    page.open(stage.url)
    page.start("Look at the sea")
    page.shows("Let me")

    page.cancel("After the model")
    page.shows("stopping", HEAD)
    page.shows("to stop after the model: asked by user local", ".note.stop")
    assert page.text(".ending") == ""
    gate.open()

    page.shows("an answer was complete, and none of its tools had started", ".ending")
    page.shows("Let me see.", ".answer")
    page.shows("not started", ".call")
    page.shows("cancelled", HEAD)


def test_after_the_tools_lets_the_round_end(serve: Serve, page: Page) -> None:
    """The result of the tool is there, and the model is not asked again."""
    gate = Gate()
    model = ScriptedModel(LOOK, "never asked for")
    stage = serve(acting(model, [waiting(gate)]))
    page.open(stage.url)
    page.start("Look at the sea")
    page.shows("running", ".call .state")

    page.cancel("After the tools", reason="enough", grace=60)
    page.shows("stopping", HEAD)
    page.shows("after the tools, within 60 s", ".note.stop")
    gate.open()

    page.shows("every tool of the round had ended", ".ending")
    page.shows("the sea is calm", ".call .result")
    page.shows("completed", ".call .state")
    assert len(model.requests) == 1


def test_a_grace_that_runs_out_is_told_as_such(serve: Serve, page: Page) -> None:
    """The tool is cut, and nobody claims to know what it did."""
    stage = serve(acting(ScriptedModel(LOOK), [waiting(Gate())]))
    page.open(stage.url)
    page.start("Look at the sea")
    page.shows("running", ".call .state")

    page.cancel("After either", grace=0.2)

    page.shows("stopped at once, because no safe point came within the grace", ".ending")
    page.shows("the grace ran out", ".ending")
    page.shows("whether it took effect is not known", ".call .state")


def test_a_stop_can_be_made_more_urgent(serve: Serve, page: Page) -> None:
    """Both requests are in the report."""
    stage = serve(acting(ScriptedModel(LOOK), [waiting(Gate())]))
    page.open(stage.url)
    page.start("Look at the sea")
    page.shows("running", ".call .state")

    page.cancel("After the tools", reason="when you can")
    page.shows("stopping", HEAD)
    page.cancel("Now", reason="no, at once")

    page.shows("“when you can” (asked for: after the tools)", ".ending")
    page.shows("“no, at once” (asked for: now)", ".ending")
    page.shows("a later request asked for more", ".ending")


def test_a_run_that_ends_by_itself_is_finished_and_not_cancelled(serve: Serve, page: Page) -> None:
    """A stop that found nothing to stop says so."""
    gate = Gate()
    stage = serve(acting(ScriptedModel(["All ", gate, "done."])))
    page.open(stage.url)
    page.start("Do it")
    page.shows("All")

    page.cancel("After the tools")
    page.shows("stopping", HEAD)
    gate.open()

    page.shows("finished", HEAD)
    page.shows("Result: it had ended by itself before the stop took effect", ".told")
    page.shows("All done.", ".answer")


@pytest.mark.parametrize("again", [False, True], ids=["the page that asked", "a page that was loaded since"])
def test_nothing_says_cancelled_before_the_journal_does(serve: Serve, page: Page, *, again: bool) -> None:
    """While the end is not written down, head, list, title, timeline and messages say stopping."""
    stage = serve(acting(ScriptedModel(["Once upon ", Gate()])))
    page.open(stage.url)
    run_id = page.start("Tell a story")
    page.shows("Once upon")
    stage.substrate.end = Gate("end")

    page.cancel("Now")
    stage.substrate.end.wait_reached()
    if again:
        page.driver.refresh()
    page.shows("stopping", HEAD)
    page.shows("stopping", "#runs .state")
    page.refreshed()

    seen = page.text("main, #runs, #health") + page.driver.title
    assert "cancelled" not in seen.lower()
    assert stage.row(run_id).state == "stopping"

    stage.substrate.end.open()
    page.shows("cancelled", HEAD)
    page.shows("cancelled", ".ending")
    page.shows("cancelled", "#runs .state")
