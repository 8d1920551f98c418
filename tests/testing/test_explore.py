"""The explorer stops a scenario everywhere, finds what is broken, and says where."""

import asyncio
import re
import sys
from itertools import count, groupby
from threading import Event, Thread

import anyio
import pytest
from anyio.abc import Process

from andon import Agent, Call, Point, Reasoning, Stop, tool
from andon.core.messages import Image, Message, Result, ResultState, Text
from andon.runtime.isolate import THREAD_NAME
from andon.testing import (
    MODES,
    Exploration,
    Hang,
    Mode,
    Scenario,
    Scene,
    ScriptedModel,
    Tally,
    Yield,
    explore,
)
from andon.testing.conversation import anthropic, chat, problems, responses
from andon.testing.log import history
from andon.testing.provider.strict import chat_problems
from andon.testing.trial import Trial

NOW = (Mode(name="now", stops=(Stop.now(),)),)


def talk() -> Scene:
    """Set up an agent that only talks."""
    model = ScriptedModel(["Hello ", Yield(), "there."])
    return Scene(agent=Agent(model), models=[model])


def work() -> Scene:
    """Set up an agent with a tool that counts itself."""
    tally = Tally("look")

    @tool
    async def look() -> str:
        """Look around."""
        with tally.of("look"):
            await anyio.sleep(1)
        return "nothing"

    model = ScriptedModel([Yield(), Call("look")], ["Nothing", Yield(), "."])
    return Scene(agent=Agent(model, tools=[look]), models=[model], tally=tally)


def test_every_step_and_boundary_is_tried_in_every_mode() -> None:
    """Two runs without a stop, then one for each place and mode."""
    found = explore(Scenario(name="talk", make=talk))
    found.check()
    assert found.runs == 2 + len(MODES) * (found.steps + found.boundaries)
    assert found.report() == (
        f"talk: {found.runs} runs over {found.steps} steps and {found.boundaries} boundaries, 0 violations"
    )


def test_the_same_scenario_gives_the_same_twice() -> None:
    """Every step of every run is determined, violations included."""
    scenario = Scenario(name="work", make=work, ends="limit")
    assert explore(scenario, most=3) == explore(scenario, most=3)


def test_a_stop_lands_at_exactly_the_step_that_was_asked_for() -> None:
    """The place where the run stops moves on with the step, from before the start to never."""
    scenario = Scenario(name="work", make=work)
    steps = Trial(scenario, NOW[0]).go().steps
    seen = [Trial(scenario, NOW[0], at_step=step).go() for step in range(steps + 1)]
    ends = [one.outcome.cancelled for one in seen if one.outcome is not None]
    places = [str(report.stopped_at) if report is not None else "never" for report in ends]
    there = ["before_start", "model", "tools", "point:tools", "model", "never"]
    assert [place for place, _ in groupby(places)] == there


def test_all_ways_of_stopping_are_in_the_modes() -> None:
    """Now, at each point, at both, gently, with a grace, twice, and by the task."""
    asked = [mode.stops for mode in MODES]
    for point in (Point.MODEL, Point.TOOLS, Point.ANY, Point.STREAM | Point.ANY):
        assert (Stop.at(point),) in asked
    assert (Stop.now(),) in asked
    assert any(mode.by_task for mode in MODES)
    assert any(stop.grace for stops in asked for stop in stops)


def test_most_spreads_the_runs_evenly() -> None:
    """The first and the last step are among them."""
    assert explore(Scenario(name="talk", make=talk), modes=NOW, most=2).runs == 2 + 2 + 2
    assert explore(Scenario(name="talk", make=talk), modes=NOW, most=1).runs == 2 + 1 + 1


def test_a_foreign_scenario_is_stopped_at_its_boundaries_only() -> None:
    """Its steps depend on threads and processes."""
    found = explore(Scenario(name="talk", make=talk, foreign=True), modes=NOW)
    assert (found.steps, found.runs) == (0, 1 + found.boundaries)


def test_a_violation_names_the_scenario_the_mode_the_place_and_the_invariant() -> None:
    """Enough to run that one trial again."""

    def forgetful() -> Scene:
        scene = work()
        scene.tally.ended["look"] = 1
        return scene

    found = explore(Scenario(name="forgetful", make=forgetful), modes=NOW, most=2)
    assert found.violations[0].broken == "finished work is kept: look ended 2 times, 1 are reported"
    told = str(found.violations[-1])
    assert re.match(r"forgetful, stopped now at boundary \d+ \(RunEnded is in the log\): finished work", told)
    with pytest.raises(AssertionError, match=r"forgetful: 6 runs over .* violations\n"):
        found.check()


def test_a_long_report_is_cut_short() -> None:
    """Twenty violations are told, the rest is counted."""
    found = explore(Scenario(name="talk", make=talk, ends="limit"), modes=NOW, most=1)
    many = Exploration(scenario="talk", runs=1, steps=1, boundaries=1, violations=[found.violations[0]] * 30)
    lines = many.report().splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  … and 10 more"


def test_a_run_that_never_ends_is_named_with_what_it_waits_for() -> None:
    """Virtual time runs out at once, so nothing hangs."""

    def hang() -> Scene:
        model = ScriptedModel(["Hm", Hang()])
        return Scene(agent=Agent(model), models=[model])

    found = explore(Scenario(name="hang", make=hang), modes=NOW, most=2)
    assert "the run never ended" in found.violations[0].broken
    assert "agent.run waits in Bell.wait" in found.violations[0].broken
    assert "waits in _wait, script.py" in found.violations[0].broken


def test_a_scenario_that_differs_from_run_to_run_is_a_violation() -> None:
    """Otherwise a step would not be the same place twice."""
    turns = count()

    def moody() -> Scene:
        model = ScriptedModel(["Hm", *[Yield()] * next(turns)])
        return Scene(agent=Agent(model), models=[model])

    found = explore(Scenario(name="moody", make=moody), modes=())
    assert [one.broken[:33] for one in found.violations] == ["the scenario does the same twice:"]


def test_a_scenario_that_ends_otherwise_than_it_says_is_a_violation() -> None:
    """A limit that is never reached, an answer that never comes."""
    found = explore(Scenario(name="talk", make=talk, ends="limit"), modes=())
    assert found.violations[0].broken == "a run that nobody stops ends as limit: it ended as end_turn"


def test_what_a_scene_leaves_running_is_a_violation() -> None:
    """A task that a tool starts and forgets is found."""

    def leaky() -> Scene:
        @tool
        async def leak() -> str:
            """Forget a task."""
            left.append(asyncio.get_running_loop().create_task(anyio.sleep(60), name="forgotten"))
            return "oops"

        left: list[object] = []
        model = ScriptedModel([Call("leak")], "Done.")
        return Scene(agent=Agent(model, tools=[leak]), models=[model])

    found = explore(Scenario(name="leaky", make=leaky), modes=())
    assert "nothing is left running: task forgotten waits in sleep" in found.violations[0].broken


def test_a_thread_and_a_process_that_are_left_are_named() -> None:
    """Nothing of the run may go on after it, unless the report says so."""
    release = Event()

    def leaky() -> Scene:
        release.clear()

        @tool
        async def leak() -> str:
            """Forget a thread and a child."""
            Thread(target=release.wait, name=THREAD_NAME, daemon=True).start()
            program = "import sys; sys.stdin.read()"
            left.append(await anyio.open_process([sys.executable, "-c", program], start_new_session=True))
            return "oops"

        model = ScriptedModel([Call("leak")], "Done.")
        return Scene(agent=Agent(model, tools=[leak]), models=[model], let_go=release.set)

    left: list[Process] = []
    found = explore(Scenario(name="leaky", make=leaky, foreign=True), modes=())
    told = [one.broken.rpartition(" ")[0] for one in found.violations]
    left_running = "nothing is left running:"
    assert told == [
        f"{left_running} thread",
        f"{left_running} child process",
        f"{left_running} process group",
    ]


CALL = Call("look", {"at": "it"}, "c1")
WHOLE = [
    Message.user("Go.", Image(url="https://example.org/cord.png")),
    Message.assistant(Reasoning("Hm."), "See:", CALL),
    Message("tool", (Result("c1", "look", "empty"),)),
    Message.assistant("It is empty."),
]


def test_a_whole_history_has_no_problems() -> None:
    """Neither by the house's rules nor by the providers'."""
    assert list(history(WHOLE)) == []
    assert problems(WHOLE) == []


def test_a_history_is_written_as_each_provider_wants_it() -> None:
    """The call, its result and the words are all there."""
    assert chat(WHOLE[1:3]) == {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "See:"}],
                "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"at":"it"}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "empty"},
        ],
    }
    assert responses(WHOLE[1:3])["input"] == [
        {"role": "assistant", "content": [{"type": "output_text", "text": "See:"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"it"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "empty"},
    ]
    assert anthropic(WHOLE[1:3])["messages"] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "See:"},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "it"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "empty"}]},
    ]


ASKED = Message.user("Go.")
SAID = Message.assistant("So be it.")
ANSWERED = Message("tool", (Result("c1", "look", "empty"),))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ([], "begins with the user"),
        ([SAID], "begins with the user"),
        ([ASKED], "ends with words of the assistant"),
        ([ASKED, Message.assistant(CALL)], "each call has one result|needs no repair"),
        ([ASKED, Message.assistant(CALL), SAID], "each call has one result"),
        ([ASKED, ANSWERED, SAID], "each call has one result"),
        ([ASKED, SAID, SAID], "no assistant after an assistant"),
        ([ASKED, Message("assistant", (Text(" "),))], "no blank text"),
        ([ASKED, Message("assistant", ())], "no blank text"),
        ([ASKED, Message.assistant(CALL), ANSWERED, ANSWERED, SAID], "OpenAI Chat: Duplicate"),
    ],
)
def test_a_broken_history_is_named(broken: list[Message], words: str) -> None:
    """Each rule is awake."""
    assert any(part in one for one in history(broken) for part in words.split("|"))


def test_the_strict_provider_is_asked() -> None:
    """What the house would let pass, a provider may not."""
    assert chat_problems(chat([ASKED, ANSWERED]))
    unknown = Message("tool", (Result("c1", "look", "?", ResultState.UNKNOWN),))
    assert problems([ASKED, Message.assistant(CALL), unknown, SAID]) == []
