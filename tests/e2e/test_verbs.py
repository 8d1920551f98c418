"""Steering, answering and resuming in the console."""

import pytest

from andon import Call, ToolContext, tool
from andon.testing import Gate, ScriptedModel
from tests.e2e.conftest import Serve
from tests.e2e.page import HEAD, Page
from tests.e2e.stage import acting

LOOK = Call("look", {"at": "the sea"})
CONFIRM = Call("confirm", {"what": "the 9:39"})


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"{at} is calm"


@tool
async def confirm(what: str, context: ToolContext) -> str:
    """Ask a human."""
    return f"said: {await context.interrupt(f'Shall I book {what}?')}"


def test_a_steer_is_heard_with_the_next_call(serve: Serve, page: Page) -> None:
    """What was under way is not cut."""
    gate = Gate()
    model = ScriptedModel(["Let me ", gate, "see. ", LOOK], "Calm, in short.")
    stage = serve(acting(model, [look]))
    page.open(stage.url)
    page.start("How is the sea?")
    page.shows("Let me", ".answer.live")

    page.steer("Be brief", "next")
    page.shows("Said.", ".told")
    gate.open()

    page.shows("Be brief", ".steered")
    page.shows("Calm, in short.", ".answer")
    page.shows("Let me see.", ".answer")
    assert model.requests[-1].messages[-1].text == "Be brief"


def test_a_steer_now_cuts_what_is_said(serve: Serve, page: Page) -> None:
    """The words that had come stay, marked as cut, and nobody calls the run cancelled."""
    model = ScriptedModel(["The history of ", Gate()], "It is calm.")
    stage = serve(acting(model))
    page.open(stage.url)
    page.start("How is the sea?")
    page.shows("The history of", ".answer.live")

    page.steer("Only today", "now")

    page.shows("It is calm.", ".answer")
    page.shows("The history of", ".answer.cut")
    page.shows("Only today", ".steered")
    page.shows("finished", HEAD)


def test_a_steer_at_the_end_makes_it_go_on(serve: Serve, page: Page) -> None:
    """It is heard when the run would have ended."""
    gate = Gate()
    stage = serve(acting(ScriptedModel(["It ", gate, "is calm."], "And warm.")))
    page.open(stage.url)
    page.start("How is the sea?")
    page.shows("It", ".answer.live")

    page.steer("How warm?", "idle")
    page.shows("Said.", ".told")
    gate.open()

    page.shows("And warm.", ".answer")
    page.shows("How warm?", ".steered")


def test_a_question_is_answered(serve: Serve, page: Page) -> None:
    """The answer is a run that goes on from there; the one that asked says which."""
    stage = serve(acting(ScriptedModel(CONFIRM, "It is booked."), [confirm]))
    page.open(stage.url)
    first = page.start("Book it")
    page.shows("waits for an answer", HEAD)
    page.shows("Shall I book the 9:39?", ".answer-form")

    page.find(".answer-form input").send_keys("yes, please")
    page.button("Answer").click()

    page.shows("It is booked.", ".answer")
    page.shows("answered: yes, please", ".note.ask")
    page.shows("said: yes, please", ".call .result")
    page.open(stage.url, first)
    page.shows("It went on as another run", ".verbs")
    page.hides(".answer-form")


def test_a_question_can_be_dropped(serve: Serve, page: Page) -> None:
    """Cancelling a run that waits is told like any other stop."""
    stage = serve(acting(ScriptedModel(CONFIRM), [confirm]))
    page.open(stage.url)
    page.start("Book it")
    page.shows("waits for an answer", HEAD)

    page.cancel("Now", reason="too dear")

    page.shows("cancelled", HEAD)
    page.shows("while it waited for an answer", ".ending.cancelled")
    page.shows("user local: “too dear”", ".ending.cancelled")
    page.hides(".answer-form")
    page.driver.refresh()
    page.shows("user local: “too dear”", ".ending.cancelled")
    page.button("Send")
    assert "Resume" not in page.text(".verbs")


@pytest.mark.parametrize("way", ["Now", "After the tools"])
def test_a_cancelled_run_is_resumed(serve: Serve, page: Page, way: str) -> None:
    """It goes on from what was done, as another run; the first one leads there."""
    gate = Gate()

    @tool(idempotent=True)
    async def look(at: str) -> str:
        """Look at something."""
        await gate
        return f"{at} is calm"

    stage = serve(acting(ScriptedModel(LOOK, "Calm."), [look]))
    page.open(stage.url)
    first = page.start("How is the sea?")
    page.shows("running", ".call .state")
    page.cancel(way)
    if way != "Now":
        page.shows("stopping", HEAD)
        gate.open()
    page.shows("cancelled", HEAD)
    gate.open()

    page.button("Resume").click()

    page.shows("goes on from where it was stopped")
    page.shows("Calm.", ".answer")
    page.shows("finished", HEAD)
    assert page.run_id != first
    page.open(stage.url, first)
    page.shows("It went on as another run", ".verbs")
    page.shows("cancelled", HEAD)
