"""What a caller gives by mistake is refused in words, and leaves nothing behind."""

import re
from typing import Any

import pytest

from andon.core.messages import Call, Image, Message, Result, Text
from andon.core.stop import Point, Stop
from andon.errors import CheckpointError, ToolDefinitionError, UserError
from andon.runtime.agent import Agent
from andon.runtime.prompt import as_history, as_message
from andon.runtime.tools import tool
from andon.testing import ScriptedModel


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        (b"hi", "the prompt is a bytes: give text"),
        (3, "the prompt is a int: give text"),
        (["hi", 3], "the prompt holds a int: give texts and Images"),
        ("  ", "the prompt is empty"),
        ([], "the prompt is empty"),
        ("half a \ud83d", "the prompt is no valid text"),
    ],
)
def test_a_prompt_that_nobody_could_read_is_refused(prompt: object, problem: str) -> None:
    """Before the run begins."""
    with pytest.raises(UserError, match=problem):
        Agent(ScriptedModel()).start(prompt)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_prompt_may_be_text_a_message_or_words_and_pictures() -> None:
    """All become one message of the user."""
    picture = Image(url="https://example.org/cord.png")

    assert as_message("née") == Message.user("née")
    assert as_message(Message.user("hi")) == Message.user("hi")
    assert as_message(["What is", Text("this?"), picture]) == Message.user("What is", Text("this?"), picture)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([{"role": "user", "content": "old"}], "messages holds a dict: give Messages"),
        ("x", "messages is a str: give a list of Messages"),
        (None, "messages is a NoneType: give a list of Messages"),
    ],
)
async def test_a_history_of_something_else_is_refused(messages: object, problem: str) -> None:
    """And no run is left live by it."""
    agent = Agent(ScriptedModel("Done."))

    with pytest.raises(UserError, match=problem):
        await agent.run("hi", messages=messages)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert repr(agent) == "<Agent agent, 0 live>"
    assert as_history([]) == ()


@pytest.mark.parametrize("stop", ["now", Point.TOOLS, Stop, Stop.now])
async def test_a_stop_that_is_none_is_refused(stop: object) -> None:
    """The message shows one; the run goes on."""
    agent = Agent(ScriptedModel("Done."))
    run = agent.start("hi")

    for cancel in (run.cancel, agent.cancel):
        with pytest.raises(TypeError, match=re.escape("give a Stop, such as Stop.now()")):
            cancel(stop)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert (await run.outcome()).stop_reason == "end_turn"


async def test_a_reason_that_is_no_text_is_refused() -> None:
    """So is whoever asks."""
    run = Agent(ScriptedModel("Done.")).start("hi")

    with pytest.raises(TypeError, match="reason is 3: give text"):
        run.cancel(reason=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.close()


@pytest.mark.parametrize("checkpoint", [None, 3])
async def test_a_checkpoint_that_is_none_is_refused(checkpoint: object) -> None:
    """A run that gave its answer has none to go on from."""
    with pytest.raises(CheckpointError, match="a run that gave its answer has none"):
        await Agent(ScriptedModel()).resume(checkpoint)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_tools_that_are_none_are_refused() -> None:
    """In a list or alone."""
    with pytest.raises(ToolDefinitionError, match="it is no list of tools"):
        Agent(ScriptedModel(), tools=print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolDefinitionError, match="it is no function"):
        tool(3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


PICTURE = Image(url="\ud800")


def odd(value: object) -> Any:  # noqa: ANN401 — what no type checker would let pass
    """Give what somebody may write all the same."""
    return value


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message.user("half a \ud83d"), "is no valid text (surrogates not allowed at 7): decode it"),
        (Message("user", (odd("hi"),)), "of the user, holds a str: its parts are Text and Image"),
        (Message("user", (Call("look"),)), "of the user, holds a Call: its parts are Text and Image"),
        (Message("user", (PICTURE,)), "is no valid text"),
        (Message("user", (Text(odd(5)),)), "cannot be written down: Expected `str`, got `int`"),
        (
            Message(odd("system"), (Text("hi"),)),
            "has the role 'system': it is one of user, assistant, tool",
        ),
    ],
)
async def test_a_message_that_nobody_could_have_said_is_refused(message: Message, problem: str) -> None:
    """As a prompt, in a history, and as what is said to a live run."""
    agent = Agent(ScriptedModel("Done."))
    run = agent.start("hi")
    with pytest.raises(
        UserError, match=re.escape(f"the prompt{', ' if 'of the' in problem else ' '}{problem}")
    ):
        agent.start(message)
    with pytest.raises(UserError, match=re.escape(problem)):
        agent.start("hi", messages=[Message.user("go"), message])
    with pytest.raises(UserError, match=re.escape(problem)):
        run.steer(message)
    await run.close()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            Message("assistant", (Image(b"1"),)),
            "[1], of the assistant, holds a Image: its parts are Text and",
        ),
        (Message("tool", (Text("hi"),)), "messages[1], of the tool, holds a Text: its parts are Result"),
        (
            Message.assistant(Call("look", odd("text"))),
            "messages[1] cannot be written down: Expected `object`",
        ),
        (
            Message("tool", (Result("c", "look", odd(5)),)),
            "messages[1] cannot be written down: Expected `str`",
        ),
        (Message(odd("nobody"), ()), "messages[1] has the role 'nobody'"),
    ],
)
def test_a_history_that_nobody_could_have_had_is_refused(message: Message, problem: str) -> None:
    """Which message it is, what is wrong with it, and what it could be."""
    with pytest.raises(UserError, match=re.escape(problem)):
        as_history([Message.user("go"), message])


def test_the_bytes_of_a_picture_are_not_looked_at() -> None:
    """There may be many of them, and any will do."""
    message = Message.user("Look:", Image(b"\xff\xd8"))
    assert as_history([message])[0] is message
