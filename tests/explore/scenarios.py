"""The scenarios that are stopped at every step: each a small story with one thing to go wrong."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import Any

import anyio

from andon import Agent, Call, Limits, ModelError, Reasoning, ToolContext, ToolError, Usage, tool
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.tools import Tool
from andon.testing import Burst, Delay, Gate, Scenario, Scene, ScriptedModel, Tally, Yield
from tests.explore.cast import made

SHORT = 0.05  # real seconds, where threads and processes take part
SLOW = 10.0  # real seconds that such a run may take to end on a busy machine


def _text() -> Scene:
    model = ScriptedModel([Yield(), "The cord ", Delay(1), "hangs ", Burst(3, "low "), Yield(), "here."])
    return Scene(agent=Agent(model), models=[model])


class Clinging(ScriptedModel):
    """A model that swallows its cancellation, for half a virtual minute."""

    async def __call__(self, request: ModelRequest, /) -> AsyncGenerator[Chunk]:
        """Say something, then cling; once it has another script, just play that."""
        async with aclosing(super().__call__(request)) as reply:
            async for chunk in reply:
                yield chunk
                if isinstance(chunk, Reasoning):
                    await self._cling()

    async def _cling(self) -> None:
        loop = asyncio.get_running_loop()
        release = asyncio.Event()
        loop.call_later(30, release.set)
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue


def _clinging() -> Scene:
    model = Clinging(["I hold ", Reasoning("firmly"), "on."])
    return Scene(agent=Agent(model, tool_grace=0.5), models=[model], within=0.6)


def _tidying() -> Scene:
    model = Tidying(["Almost ", Delay(1), "there."])
    return Scene(agent=Agent(model, tool_grace=0.5), models=[model], within=0.4)


class Tidying(ScriptedModel):
    """A model that takes a while to close its connection."""

    async def __call__(self, request: ModelRequest, /) -> AsyncGenerator[Chunk]:
        """Play the script, and clean up slowly behind it."""
        async with aclosing(super().__call__(request)) as reply:
            try:
                async for chunk in reply:
                    yield chunk
            finally:
                await anyio.sleep(0.3)


def _reasoning() -> Scene:
    thought = [Reasoning("Hm, "), Yield(), Reasoning("so."), "Yes", Yield(), ".", Usage(output_tokens=9)]
    model = ScriptedModel(thought)
    return Scene(agent=Agent(model), models=[model])


def _one_tool() -> Scene:
    tally = Tally("look")

    @tool
    async def look(place: str) -> str:
        """Look somewhere."""
        with tally.of("look"):
            await anyio.sleep(1)
        return f"{place} is empty"

    said = ["Let me ", Yield(), "see.", Call("look", {"place": "box"})]
    model = ScriptedModel(said, ["It is ", "empty."], by_round=True)
    return Scene(agent=Agent(model, tools=[look]), models=[model], tally=tally)


def _work(tally: Tally, name: str, seconds: float) -> Tool[..., Any]:
    async def work() -> str:
        """Work a while."""
        with tally.of(name):
            await anyio.sleep(seconds)
        return name

    return made(work, name)


def _many(*, at_once: int | None = None) -> Scene:
    tally = Tally(*(f"work{number}" for number in range(5)))
    tools = [
        _work(tally, name, seconds) for name, seconds in zip(tally.begun, (1, 0.1, 3, 0.1, 2), strict=True)
    ]
    model = ScriptedModel(
        [*(Call(name) for name in tally.begun)], [Call("work1"), Call("work2")], "Done.", by_round=True
    )
    agent = Agent(model, tools=tools, tool_concurrency=at_once)
    return Scene(agent=agent, models=[model], tally=tally)


def _sequential() -> Scene:
    tally = Tally("first", "second", "third")

    @tool(sequential=True)
    async def second() -> str:
        """Come second."""
        with tally.of("second"):
            await anyio.sleep(1)
        return "2"

    tools = [_work(tally, "first", 1), second, _work(tally, "third", 1)]
    model = ScriptedModel([Call("first"), Call("second"), Call("third")], "In turn.", by_round=True)
    return Scene(agent=Agent(model, tools=tools), models=[model], tally=tally)


def _failing() -> Scene:
    @tool
    async def fail(how: str) -> str:
        """Fail in some way."""
        await anyio.sleep(0.2)
        if how == "told":
            msg = "the box is locked"
            raise ToolError(msg)
        raise KeyError(how)

    calls = [Call("fail", {"how": "told"}), Call("fail", {"how": "odd"}), Call("fail"), Call("absent")]
    model = ScriptedModel(calls, "It does not work.", by_round=True)
    return Scene(agent=Agent(model, tools=[fail]), models=[model])


def _swallowing() -> Scene:
    gate = Gate("never mind")

    @tool
    async def swallow() -> str:
        """Ignore every cancellation."""
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                continue
        return "late"

    @tool
    async def tidy() -> str:
        """Clean up, and say so."""
        with tally.of("tidy"):
            try:
                await anyio.sleep(3)
            except asyncio.CancelledError:
                return "put away"
            return "in time"

    tally = Tally("tidy")
    model = ScriptedModel([Call("swallow"), Call("tidy")], "Done.", by_round=True)
    agent = Agent(model, tools=[tool(timeout=5)(swallow.function), tidy], tool_grace=0.5)
    return Scene(agent=agent, models=[model], tally=tally, within=0.6, let_go=gate.open)


def _shielded() -> Scene:
    tally = Tally("pay", "look")

    @tool(finish=True)
    async def pay() -> str:
        """Pay, whatever is asked."""
        with tally.of("pay"):
            await anyio.sleep(2)
        return "paid"

    model = ScriptedModel(["Paying.", Call("pay"), Call("look")], "Paid.", by_round=True)
    agent = Agent(model, tools=[pay, _work(tally, "look", 1)])
    return Scene(agent=agent, models=[model], tally=tally, within=2.1)


def _streaming() -> Scene:
    tally = Tally("count")

    @tool
    async def count(to: int) -> AsyncIterator[int]:
        """Count."""
        with tally.of("count"):
            for number in range(to):
                yield number
                await anyio.sleep(0.3)

    model = ScriptedModel([Call("count", {"to": 4})], "Four.", by_round=True)
    return Scene(agent=Agent(model, tools=[count]), models=[model], tally=tally)


def _retry() -> Scene:
    busy = ModelError("busy", transient=True)
    model = ScriptedModel(["So", Yield(), busy], [Delay(0.1), busy], ["So be ", Yield(), "it."])
    return Scene(agent=Agent(model), models=[model])


def _fallback() -> Scene:
    first = ScriptedModel([Yield(), "I", ModelError("gone")], name="first")
    second = ScriptedModel(["We ", Delay(1), "do."], name="second")
    return Scene(agent=Agent(first, fallback=[second], retries=0), models=[first, second])


def _limits() -> Scene:
    tally = Tally("look")
    calls = [[Yield(), "More.", Call("look")] for _ in range(5)]
    model = ScriptedModel(*calls, by_round=True)
    agent = Agent(model, tools=[_work(tally, "look", 0.5)], limits=Limits(model_calls=2))
    return Scene(agent=agent, models=[model], tally=tally)


async def _slow_hook(_: Moment) -> None:
    await anyio.sleep(0.4)


def _refuse_second(moment: Moment) -> str | None:
    return "not this one" if moment.call is not None and moment.call.id == "b" else None


def _hooks() -> Scene:
    tally = Tally("look")
    model = ScriptedModel(
        [Yield(), "Hm.", Call("look", id="a"), Call("look", id="b")], "Done.", by_round=True
    )
    agent = Agent(model, tools=[_work(tally, "look", 1)])
    for moment in ("run_started", "before_model", "after_model", "before_tool", "after_tool"):
        agent.on(moment, _slow_hook)
    for moment in ("message_added", "run_ended"):
        agent.on(moment, _slow_hook, safe=True)
    agent.on("before_tool", _refuse_second)
    return Scene(agent=agent, models=[model], tally=tally, within=2.1)


def _timeouts() -> Scene:
    tally = Tally("slow", "quick")

    @tool(timeout=1)
    async def slow() -> str:
        """Take too long."""
        with tally.of("slow"):
            await anyio.sleep(10)
        return "at last"

    model = ScriptedModel([Call("slow"), Call("quick")], "One was too slow.", by_round=True)
    agent = Agent(model, tools=[slow, _work(tally, "quick", 0.5)])
    return Scene(agent=agent, models=[model], tally=tally)


def _odd_endings() -> Scene:
    tally = Tally("look")

    @tool
    async def give_up() -> str:
        """Cancel itself, without any stop."""
        await anyio.sleep(0.1)
        raise asyncio.CancelledError

    @tool(finish=True)
    async def pay() -> str:
        """Pay, and never hear of it."""
        await anyio.sleep(100)
        return "paid"

    calls = [Call("give_up"), Call("pay"), Call("look")]
    model = ScriptedModel([Yield(), "Hm.", *calls], "Done.", by_round=True)
    agent = Agent(model, tools=[give_up, pay, _work(tally, "look", 1)], finish_timeout=3)
    return Scene(agent=agent, models=[model], tally=tally, within=3.1)


class SlowStore:
    """A store that takes its time, and keeps nothing."""

    async def get(self, checkpoint_id: str, /) -> bytes | None:
        """Find nothing."""
        return None if checkpoint_id else b""

    async def set(self, checkpoint_id: str, data: bytes, /) -> None:
        """Take a while, and fail for what is long."""
        await anyio.sleep(0.3)
        if len(data) > 300:
            raise OSError(checkpoint_id)

    async def delete(self, checkpoint_id: str, /) -> None:
        """Have nothing to forget."""


def _stored() -> Scene:
    tally = Tally("look")
    model = ScriptedModel(["Hm.", Yield(), Call("look")], "Done.", by_round=True)
    agent = Agent(model, tools=[_work(tally, "look", 1)], store=SlowStore())
    return Scene(agent=agent, models=[model], tally=tally, within=0.4)


def _failing_hook() -> Scene:
    tally = Tally("look")
    model = ScriptedModel([Yield(), "Hm.", Call("look"), Call("look")], "Never said.", by_round=True)
    agent = Agent(model, tools=[_work(tally, "look", 1)])

    @agent.on("after_tool")
    async def _(_: Moment) -> None:
        await anyio.sleep(0.2)
        msg = "the audit is down"
        raise RuntimeError(msg)

    return Scene(agent=agent, models=[model], tally=tally, within=0.5)


def _thread() -> Scene:
    tally = Tally("dig", "stay")
    release = Event()

    @tool
    def dig(context: ToolContext) -> str:
        """Dig, looking up now and then."""
        with tally.of("dig"):
            context.progress("half")
            context.check()
        return "a hole"

    @tool
    def stay() -> str:
        """Never look up."""
        with tally.of("stay"):
            release.wait(SHORT)
        return "still here"

    model = ScriptedModel(["On it.", Call("dig"), Call("stay")], "Dug.", by_round=True)
    agent = Agent(model, tools=[dig, stay], tool_grace=SHORT / 2)
    return Scene(agent=agent, models=[model], tally=tally, within=SLOW, let_go=release.set)


# Where tools in other processes leave their signs; the processes that we start inherit it.
SIGNS = Path(os.environ.setdefault("ANDON_EXPLORE_SIGNS", mkdtemp()))


@tool(isolate="process")
def crunch(number: int, sign: str) -> int:
    """Crunch a number where nothing else is disturbed; a sign says that it is at work."""
    (SIGNS / sign).touch()
    Event().wait(SHORT)
    return number * number


@tool
async def watch(sign: str) -> AsyncIterator[str]:
    """Tell when the other process is at work."""
    with anyio.move_on_after(SLOW):  # where that was cut before, and is not run again, nobody leaves a sign
        while not (SIGNS / sign).exists():  # noqa: ASYNC110 — another process says it by no other way
            await anyio.sleep(SHORT / 10)
    yield "at work"


def _process() -> Scene:
    calls = [Call("crunch", {"number": 12, "sign": "crunch"}), Call("watch", {"sign": "crunch"})]
    model = ScriptedModel(["Hm.", *calls], "144.", by_round=True)
    agent = Agent(model, tools=[crunch, watch], tool_grace=5.0)
    sign = SIGNS / "crunch"
    sign.unlink(missing_ok=True)
    return Scene(agent=agent, models=[model], within=SLOW)


ON_ONE_LOOP = (
    Scenario(name="text", make=_text, resumes=True),
    Scenario(name="reasoning", make=_reasoning, resumes=True),
    Scenario(name="a model that clings", make=_clinging, resumes=True),
    Scenario(name="a model that tidies up", make=_tidying, resumes=True),
    Scenario(name="one tool", make=_one_tool, resumes=True),
    Scenario(name="many parallel tools", make=_many, resumes=True),
    Scenario(name="many tools, two at once", make=partial(_many, at_once=2), resumes=True),
    Scenario(name="sequential tools", make=_sequential, resumes=True),
    Scenario(name="failing tools", make=_failing, resumes=True),
    Scenario(name="a tool that swallows", make=_swallowing, resumes=True),
    Scenario(name="a tool that finishes", make=_shielded, resumes=True),
    Scenario(name="a streaming tool", make=_streaming, resumes=True),
    Scenario(name="retries", make=_retry, resumes=True),
    Scenario(name="fallback", make=_fallback, resumes=True),
    Scenario(name="limits", make=_limits, ends="limit", resumes=True),
    Scenario(name="hooks", make=_hooks, resumes=True),
    Scenario(name="tool timeouts", make=_timeouts, resumes=True),
    Scenario(name="odd endings", make=_odd_endings, resumes=True),
    Scenario(name="a slow store", make=_stored, resumes=True),
    Scenario(name="a failing hook", make=_failing_hook, ends="error", resumes=True),
)
FOREIGN = (
    Scenario(name="thread tools", make=_thread, foreign=True, resumes=True),
    Scenario(name="a process tool", make=_process, foreign=True, resumes=True),
)
