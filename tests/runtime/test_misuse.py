"""Misuse: each error says what, which, and what now."""

from typing import Any

import pytest

from andon import Agent, Image, Message, Point, Stop, loop, tool
from andon.errors import MissingExtraError, RunStateError, ToolDefinitionError, UnknownModelError, UserError
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.whole import whole


@tool
async def work() -> str:
    """Work."""
    return "done"


@tool(name="work")
async def other() -> str:
    """Work."""
    return "done"


async def coroutine_model(request: object) -> str:
    """Return where it should yield."""
    return f"{request}"


def agent(**options: Any) -> Agent:  # noqa: ANN401 - whatever a caller may write
    """An agent of a model that is never asked."""
    return Agent(options.pop("model", ScriptedModel()), **options)


NOBODY = "no provider is called 'nobody', only anthropic, "


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"tools": [work, other]},
            ToolDefinitionError,
            "tool 'work': there are two tools of this name; rename",
        ),
        ({"tools": [work, work]}, ToolDefinitionError, "rename one: @tool(name=…)"),
        (
            {"model": coroutine_model},
            UserError,
            "'coroutine_model' is a coroutine function: `yield` its",
        ),
        ({"model": 7}, UserError, "model is 7: give 'provider:name', a ports.Model or an async generator"),
        ({"model": "gpt"}, UnknownModelError, "unknown model 'gpt': it names no provider; write 'provider:"),
        ({"model": "openai:"}, UnknownModelError, "it names no provider"),
        ({"model": "nobody:model"}, UnknownModelError, NOBODY),
        ({"cancel_text": " "}, ValueError, "cancel_text is empty, and providers refuse empty messages: give"),
        ({"retries": -1}, ValueError, "retries is -1: give a number from 0 up"),
        ({"retries": "2"}, TypeError, "retries is '2': give a number from 0 up"),
        ({"retries": True}, TypeError, "retries is True: give a number from 0 up"),
        ({"tool_concurrency": "2"}, TypeError, "tool_concurrency is '2': give a number from 1 up, or None"),
        ({"fallback": "openai:x"}, UserError, "fallback is 'openai:x': give a list, such as fallback=[…]"),
        ({"fallback": ScriptedModel()}, UserError, "give a list, such as fallback=[…]"),
        ({"hand_over": Agent(ScriptedModel())}, UserError, "give a list, such as hand_over=[…]"),
        ({"observers": 5}, UserError, "observers is 5: give a list, such as observers=[…]"),
        ({"limits": {}}, TypeError, "limits is {}: give Limits, such as Limits(model_calls=20)"),
        (
            {"prices": {"scripted": 5}},
            TypeError,
            "the price of 'scripted' is 5: give a Price, such as Price(input=",
        ),
        ({"settings": "hot"}, UserError, "settings is 'hot': give a dict, such as {'temperature': 0}"),
        ({"name": 5}, TypeError, "name is 5: give text"),
        ({"instructions": "\ud800"}, ValueError, "instructions is no valid text"),
        ({"cancel_text": 5}, TypeError, "cancel_text is 5: give text"),
        ({"tool_concurrency": 0}, ValueError, "tool_concurrency is 0: give a number from 1 up, or None"),
        ({"limits": 20}, TypeError, "limits is 20: give Limits, such as Limits(model_calls=20)"),
        ({"limits": {"cost": 1}}, TypeError, "give Limits, such as"),
        ({"prices": {"m": 3}}, TypeError, "the price of 'm' is 3: give a Price, such as Price(input=3"),
    ],
)
def test_an_agent_that_cannot_be_says_why(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """When it is made, not when it runs."""
    with pytest.raises(error) as caught:
        agent(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["tool_grace", "finish_timeout", "hook_timeout", "durable_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_that_is_no_time_is_refused(name: str, seconds: float) -> None:
    """By its name."""
    with pytest.raises(ValueError, match=f"{name} is .*: give a number of seconds above 0"):
        agent(**{name: seconds})


@pytest.mark.parametrize("prompt", ["", "  \n", [], [" ", ""]])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:  # noqa: ANN401 - a table
    """Providers refuse it, too."""
    with pytest.raises(UserError, match=r"the prompt is empty, .*: say something"):
        Agent(ScriptedModel()).start(prompt)


def test_nothing_to_answer_is_refused() -> None:
    """Neither a prompt nor a history."""
    with pytest.raises(UserError, match="there is nothing to answer: give a prompt, or messages"):
        Agent(ScriptedModel()).start()


def test_a_picture_alone_is_a_prompt() -> None:
    """It says something."""
    assert Agent(ScriptedModel()).start([Image(b"1")])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"limits": {"model_calls": 1}}, TypeError, "limits is {'model_calls': 1}: give Limits"),
        ({"checkpoint_id": "x" * 201}, ValueError, "checkpoint_id has 201 characters, 200 are allowed"),
        ({"checkpoint_id": 5}, TypeError, "checkpoint_id is 5: give text"),
    ],
)
@virtual
async def test_a_run_that_cannot_be_says_why(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Also one that would go on from a checkpoint, which is not used up by it."""
    run = agent(model=ScriptedModel(Hang())).start("go")
    ticket = run.cancel(Stop.at(Point.ANY, grace=1))
    saved = (await run.outcome()).checkpoint
    assert saved is not None
    await ticket
    goes_on = agent(model=ScriptedModel("Done."))
    for begin in (lambda: goes_on.start("go", **options), lambda: goes_on.start_from(saved, **options)):
        with pytest.raises(error) as caught:
            begin()
        assert words in str(caught.value)
    with pytest.raises(TypeError, match="keep_partial is 'no': give True or False"):
        goes_on.start_from(saved, keep_partial="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert (await goes_on.resume(saved)).text == "Done."


def test_an_arm_that_is_neither_yes_nor_no_is_refused() -> None:
    """And nothing is armed by it."""
    idle = agent()
    with pytest.raises(TypeError, match="arm is 'no': give True or False"):
        idle.cancel(arm="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert idle.cancel(arm=False).report is not None


def test_a_hook_that_is_no_function_is_refused() -> None:
    """When it is registered, and not in each run."""
    with pytest.raises(UserError, match="the hook for 'run_started' is 5: give a function of one argument"):
        agent().on("run_started", 5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError, match="safe is 'no': give True or False"):
        agent().on("run_started", print, safe="no")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("flag", ["finish", "idempotent", "sequential"])
def test_a_mark_of_a_tool_that_is_neither_yes_nor_no_is_refused(flag: str) -> None:
    """A text that says no would count as a yes."""
    with pytest.raises(TypeError, match=f"{flag} is 'no': give True or False"):
        tool(**{flag: "no"})(work.function)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("most", ["2", True])
def test_a_loop_of_rounds_that_are_no_number_is_refused(most: object) -> None:
    """Before it begins."""
    with pytest.raises(TypeError, match=r"max is .*: give a number from 1 up"):
        loop(agent(), max=most)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@virtual
async def test_a_run_is_entered_once() -> None:
    """The message says how to have another."""
    run = Agent(ScriptedModel("Done.")).start("go")
    async with run:
        await whole(run)
    with pytest.raises(RunStateError, match=r"has begun already: start another with agent.start\(\)"):
        async with run:
            pass


@virtual
async def test_a_bad_request_changes_nothing() -> None:
    """The run goes on, and no ticket was given."""
    answer = Gate("model")
    agent = Agent(ScriptedModel([answer, "Done."]))
    async with agent.start("go") as run:
        await answer.reached()
        for bad in ({"reason": "x" * 1_001}, {"by": "x" * 201}, {"source": "boss"}):
            with pytest.raises(ValueError, match=r"are allowed: shorten it|source is 'boss'"):
                run.cancel(**bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(ValueError, match=r"are allowed: shorten it|source is 'boss'"):
                agent.cancel(**bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="grace"):
            run.cancel(Stop.at(Point.ANY, grace=0))
        answer.open()
        outcome = await whole(run)
    assert outcome.stop_reason == "end_turn"


def test_a_missing_extra_names_what_to_install() -> None:
    """With the command that does it."""
    error = MissingExtraError("model 'openai:x'", "openai")
    assert (
        str(error)
        == "model 'openai:x' needs an optional package; install it with: pip install 'andon[openai]'"
    )


def test_a_history_that_ends_with_an_answer_needs_a_prompt() -> None:
    """There is nothing to answer, and the message says what would do."""
    with pytest.raises(UserError, match="give a prompt, or messages that end with a user's"):
        agent().start(messages=[Message.user("go"), Message.assistant("Done.")])


def test_a_run_shows_its_state() -> None:
    """New, running, ended."""
    shown: list[str] = []

    @virtual
    async def scene() -> None:
        run = Agent(ScriptedModel("Done.")).start("go")
        shown.append(repr(run).replace(run.id, "id"))
        async with run:
            shown.append(repr(run).replace(run.id, "id"))
            await whole(run)
        shown.append(repr(run).replace(run.id, "id"))

    scene()
    assert shown == [
        "<Run id new, <Scope open>>",
        "<Run id running, <Scope open>>",
        "<Run id end_turn>",
    ]


def test_an_agent_tells_its_name_and_tools() -> None:
    """As they were given."""
    agent = Agent(ScriptedModel(), tools=[work], name="trips")
    assert (agent.name, agent.tools) == ("trips", (work,))
