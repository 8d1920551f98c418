"""The list of runs in the console: a thousand live ones, and those of them that are looked for."""

from typing import cast

from andon.testing import Gate, ScriptedModel
from tests.e2e.conftest import Serve
from tests.e2e.page import HEAD, Page
from tests.e2e.stage import acting

MANY = 1_000
ROWS = "return document.querySelectorAll('#runs li').length"
AT_FIRST = """
new MutationObserver((_, watcher) => {
  if (!document.querySelector('#runs li')) return;
  watcher.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.firstRow = performance.now())));
}).observe(document, { childList: true, subtree: true });
"""
REFRESHES = """
const [wanted, done] = arguments;
const times = [];
new MutationObserver((_, watcher) => {
  const asked = performance.getEntriesByType('resource').filter((one) => one.name.includes('/runs?')).at(-1);
  requestAnimationFrame(() => setTimeout(() => {
    times.push([asked.responseEnd - asked.startTime, performance.now() - asked.responseEnd]);
    if (times.length < wanted) return;
    watcher.disconnect();
    done(times);
  }));
}).observe(document.getElementById('runs'), { childList: true, subtree: true, characterData: true });
"""


def test_a_thousand_live_runs_are_listed(serve: Serve, page: Page) -> None:
    """All are there, and the one that is looked for is found, watched and cancelled."""
    stage = serve(acting(ScriptedModel(*[["At work ", Gate()]] * MANY)))
    stage.push_many(MANY)
    added = page.devtools("Page.addScriptToEvaluateOnNewDocument", source=AT_FIRST)
    page.open(stage.url)
    page.shows(f"{MANY} runs, {MANY} live", "#count")
    page.devtools("Page.removeScriptToEvaluateOnNewDocument", **added)
    first = cast("float", page.run("return window.firstRow"))
    times = cast("list[tuple[float, float]]", page.result(REFRESHES, 5))
    told = ", ".join(f"{asked:.0f} + {shown:.0f}" for asked, shown in times)
    print(f"{MANY} runs: first row after {first:.0f} ms; a look: {told} ms (server + page)")  # noqa: T201

    page.find("#filter [name=text]").send_keys("number 777")
    page.shows("1 run, 1 live", "#count")
    page.find("#runs a").click()
    page.shows("job number 777", ".head h2")
    page.shows("At work", ".answer.live")
    page.cancel("Now")
    page.shows("cancelled", HEAD)
    page.shows("1 run, 0 live", "#count")


def test_the_list_is_narrowed_by_state_and_by_words(serve: Serve, page: Page) -> None:
    """Words are looked for in app, user, session, prompt and id; nothing found is said."""
    gate = Gate()
    stage = serve(acting(ScriptedModel("Done.", ["At work ", gate])))
    stage.push("buy bread", session="monday", user="bob")
    page.open(stage.url)
    page.shows("1 run, 0 live", "#count")
    run_id = stage.push("buy milk", session="tuesday")
    page.shows("2 runs, 1 live", "#count")

    field = page.find("#filter [name=text]")
    for words, found in (
        ("tuesday", "buy milk"),
        ("bob", "buy bread"),
        (run_id, "buy milk"),
        ("BREAD", "buy bread"),
    ):
        field.clear()
        field.send_keys(words)
        page.shows("1 run,", "#count")
        page.shows(found, "#runs .prompt")
    field.clear()
    field.send_keys("nobody")
    page.shows("No runs to show.", "#count")
    field.clear()
    field.send_keys(" ")
    page.shows("2 runs", "#count")

    page.choose("#filter [name=state]", "Live")
    page.shows("1 run, 1 live", "#count")
    page.shows("buy milk", "#runs .prompt")
    gate.open()
    page.shows("No runs to show.", "#count")
    page.choose("#filter [name=state]", "Finished")
    page.shows("2 runs, 0 live", "#count")


def test_the_newest_run_comes_first_and_others_stay_as_they_are(serve: Serve, page: Page) -> None:
    """A row that is pointed at or has the focus keeps it while the list grows."""
    stage = serve(acting(ScriptedModel(*["Done."] * 3)))
    old = stage.push("the old one", session="s1")
    page.open(stage.url)
    page.shows("finished", "#runs .state")
    page.run("document.querySelector('#runs a').focus()")
    stage.push("a newer one", session="s2")
    page.shows("2 runs", "#count")

    page.shows("a newer one\nthe old one", "#runs .prompt")
    assert page.run("return document.activeElement.getAttribute('href')") == f"#/runs/{old}"
