"""Watching in the console: words as they come, agents inside, other browsers, a server that comes back."""

import re
from pathlib import Path

from selenium.webdriver.common.by import By

from andon import Agent, Call
from andon.core.limits import Usage
from andon.testing import Gate, ScriptedModel
from tests.e2e.chromium import chromium
from tests.e2e.conftest import Serve
from tests.e2e.page import HEAD, Page
from tests.e2e.stage import acting

WORDS = "return document.querySelector('.answer .words').textContent"


def test_a_run_is_started_and_streams(serve: Serve, page: Page) -> None:
    """Words come while the model still talks; its tokens and its end are told."""
    gates = [Gate(), Gate()]
    stage = serve(
        acting(
            ScriptedModel(
                ["One, ", gates[0], "two, ", gates[1], "three.", Usage(input_tokens=9, output_tokens=1_234)]
            )
        )
    )
    page.open(stage.url)
    page.shows("No runs to show.", "#count")
    page.start("Count")

    page.shows("Count", ".head h2")
    page.shows("running", HEAD)
    page.shows("One,", ".answer.live")
    gates[0].open()
    page.shows("One, two,", ".answer.live")
    page.shows("1 run, 1 live", "#count")
    gates[1].open()

    page.shows("One, two, three.", ".answer")
    page.shows("finished", HEAD)
    page.shows("1 run, 0 live", "#count")
    page.shows("finished", "#runs .state")
    page.shows("1,243 tokens", ".ending")
    page.shows("1,243 tokens", "#runs .facts")


def test_the_conversation_goes_on_from_the_page(serve: Serve, page: Page) -> None:
    """What is said after the end is a run of the same session, which knows what was said before."""
    model = ScriptedModel("Hello, Ann.", "You are Ann.")
    stage = serve(acting(model))
    page.open(stage.url)
    first = page.start("I am Ann")
    page.shows("Hello, Ann.")

    page.find(".verb input").send_keys("Who am I?")
    page.button("Send").click()

    page.shows("You are Ann.")
    assert page.run_id != first
    assert [message.text for message in model.requests[-1].messages][:2] == ["I am Ann", "Hello, Ann."]


def test_an_agent_inside_is_shown_under_its_call(serve: Serve, page: Page) -> None:
    """To any depth, as it talks."""
    gate = Gate()
    pilot = Agent(ScriptedModel(["Fog ", gate, "lifts."]), name="pilot")
    asks = pilot.as_tool(name="ask_pilot", description="Ask the pilot.")
    weather = Agent(
        ScriptedModel(Call("ask_pilot", {"request": "fog?"}), "Fine."), tools=[asks], name="weather"
    )
    tools = [weather.as_tool(name="ask_weather", description="Ask for the weather.")]
    stage = serve(acting(ScriptedModel(Call("ask_weather", {"request": "Porto"}), "Go."), tools))
    page.open(stage.url)
    page.start("Shall I go?")

    deepest = ".call > .inside > .call > .inside"
    page.shows("Fog", f"{deepest} .answer.live")
    page.cancel("After the tools")
    page.shows("stopping", HEAD)
    gate.open()
    page.shows("Fog lifts.", f"{deepest} .answer")
    page.shows("cancelled", HEAD)
    page.shows("completed", ".timeline > .call > h3 .state")


def test_a_page_that_is_loaded_in_the_middle_has_all_words_once(serve: Serve, page: Page) -> None:
    """Also those that were said before anybody looked, and those that come afterwards."""
    gates = [Gate(), Gate()]
    model = ScriptedModel(["It was ", "a dark ", gates[0], "and stormy ", gates[1], "night."])
    stage = serve(acting(model))
    run_id = stage.push("Tell a story")
    gates[0].wait_reached()

    page.open(stage.url, run_id)
    page.shows("It was a dark", ".answer.live")
    gates[0].open()
    page.shows("It was a dark and stormy", ".answer.live")
    page.driver.refresh()
    page.shows("It was a dark and stormy", ".answer.live")
    gates[1].open()
    page.shows("finished", HEAD)
    assert page.run(WORDS) == "It was a dark and stormy night."
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".answer")) == 1

    page.driver.refresh()
    page.shows("finished", ".ending")
    assert page.run(WORDS) == "It was a dark and stormy night."


def test_two_browsers_see_one_run(serve: Serve, page: Page, tmp_path: Path) -> None:
    """What one does, the other sees: who stopped it, and why."""
    stage = serve(acting(ScriptedModel(["Once upon ", Gate()])))
    with chromium(tmp_path) as driver:
        other = Page(driver)
        page.open(stage.url)
        run_id = page.start("Tell a story")
        other.open(stage.url)
        other.find(f"#runs a[href$='{run_id}']").click()
        other.shows("Once upon", ".answer.live")

        page.cancel("Now", reason="not this one")

        other.shows("cancelled", HEAD)
        other.shows("user local: “not this one”", ".ending")
        other.button("Resume")
        page.shows("cancelled", HEAD)
        other.leave()


def test_many_tabs_leave_room_for_the_buttons_of_each(serve: Serve, page: Page) -> None:
    """A browser has six connections to a server: tabs that nobody sees hold none, and read on later."""
    stage = serve(acting(ScriptedModel(["Once upon ", Gate()])))
    run_id = stage.push("Tell a story")
    first = page.driver.current_window_handle
    for _ in range(8):
        page.driver.switch_to.new_window("tab")
        page.open(stage.url, run_id)
        page.shows("Once upon", ".answer.live")

    page.cancel("Now")
    page.shows("cancelled", ".ending")

    page.driver.switch_to.window(page.driver.window_handles[1])
    page.shows("cancelled", ".ending")
    assert page.text(".answer.cut .words").count("Once upon") == 1
    for tab in page.driver.window_handles:
        page.driver.switch_to.window(tab)
        if tab != first:
            page.driver.close()
    page.driver.switch_to.window(first)


def test_a_server_that_comes_back_is_read_on(serve: Serve, page: Page) -> None:
    """The page says that it is lost, finds back by itself, and shows the rest once."""
    page.expected = (
        r"net::ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING)"
    )
    gate = Gate()
    stage = serve(acting(ScriptedModel(["Once upon ", Gate()], ["Long ago ", gate, "there was a cat."])))
    page.open(stage.url)
    page.start("Tell a story")
    page.shows("Once upon", ".answer.live")

    stage.end()
    page.shows("connection lost", ".connection")
    page.shows("cannot be reached", "#health")
    stage.begin()

    page.shows("Long ago", ".answer.live")
    page.hides(".connection")
    page.hides("#health")
    gate.open()
    page.shows("Long ago there was a cat.", ".answer")
    page.shows("finished", HEAD)
    assert len(re.findall("Long ago", page.text(".timeline"))) == 1
    assert "cancelled" not in page.text(HEAD)


def test_a_link_to_nothing_says_so(serve: Serve, page: Page) -> None:
    """In the server's own words; another run can be chosen."""
    page.expected = "status of 404"
    stage = serve(acting(ScriptedModel("Hello.")))
    run_id = stage.push("Hello")
    page.open(stage.url, "nothing")
    page.shows("there is no run 'nothing'")
    page.find(f"#runs a[href$='{run_id}']").click()
    page.shows("Hello.", ".answer")
