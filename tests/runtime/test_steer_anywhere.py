"""Steered anywhere: in random interleavings with stops, each message is heard once or told undelivered."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from andon import Agent, Call, ModelError, Point, Reasoning, Run, Stop, ToolContext, tool
from andon.core.draft import Chunk
from andon.core.items import CallDelta
from andon.core.steer import When
from andon.ports import ModelRequest
from andon.runtime.hooks import Moment
from andon.runtime.isolate import turn
from andon.runtime.steering import SteerReceipt
from andon.runtime.ticket import Ticket
from andon.testing import VirtualLoop, run_virtual
from tests.steered import steered

STUBBORN = 5.0  # seconds for which a model that swallows its cut goes on

ReplyName = Literal["words", "slow", "call", "calls", "half a call", "thoughts", "busy", "stubborn", "silent"]
REPLIES: tuple[ReplyName, ...] = ReplyName.__args__  # type: ignore[attr-defined]


class Act(Struct, frozen=True):
    """Something that is done to a run: after some steps of its loop (int), or virtual seconds (float)."""

    what: When | Stop
    at: int | float


KINDS: tuple[When, ...] = ("next", "next", "idle", "now", "now")
STOPS = (Stop.now(), Stop.at(Point.MODEL), Stop.at(Point.TOOLS, grace=2), Stop.graceful(), Stop.gently())
MOMENTS = st.one_of(st.integers(0, 60), st.sampled_from([n / 4 for n in range(25)]))
STEERS = st.builds(Act, st.sampled_from(KINDS), MOMENTS)
CANCELS = st.builds(Act, st.sampled_from(STOPS), MOMENTS)


class Scripted:
    """A model that answers in turn as it is told, and then with words; it counts what it has open."""

    def __init__(self, replies: Sequence[ReplyName]) -> None:
        self.replies = deque(replies)
        self.live = 0

    async def __call__(self, _: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Answer."""
        self.live += 1
        try:
            async for chunk in self.reply(self.replies.popleft() if self.replies else "words"):
                yield chunk
        finally:
            self.live -= 1

    async def reply(self, name: ReplyName) -> AsyncIterator[Chunk]:
        """Give one reply."""
        match name:
            case "words":
                yield "Some "
                await turn()
                yield "words."
            case "slow":
                await anyio.sleep(1)
                yield "Slow "
                await anyio.sleep(1)
                yield "words."
            case "call" | "calls":
                yield "Let me look."
                await turn()
                for _ in range(2 if name == "calls" else 1):
                    yield Call("work")
                    await turn()
            case "half a call":
                yield CallDelta("work", "{", "c")
                await anyio.sleep(0.5)
                yield Call("work")
            case "thoughts":
                yield Reasoning("Hm. ")
                await anyio.sleep(0.5)
                yield "Yes."
            case "busy":
                yield "Half"
                await turn()
                raise ModelError("busy", transient=True)
            case "stubborn":
                yield "Never "
                await swallowing(STUBBORN)
                yield "mind."
            case "silent":
                await turn()


async def swallowing(seconds: float) -> None:
    """Wait, whoever cancels."""
    end = anyio.current_time() + seconds
    while anyio.current_time() < end:
        try:
            await anyio.sleep(end - anyio.current_time())
        except asyncio.CancelledError:
            continue


@tool
async def work(context: ToolContext) -> str:
    """Work for a second."""
    context.progress("working")
    await anyio.sleep(1)
    return "done"


async def slow_hook(_: Moment) -> None:
    """Take a while, as hooks may."""
    await anyio.sleep(0.25)


class Stage:
    """One run, and what is done to it."""

    def __init__(self, loop: VirtualLoop, run: Run) -> None:
        self.loop = loop
        self.run = run
        self.said: list[tuple[When, SteerReceipt]] = []
        self.tickets: list[Ticket] = []
        self.by_steps: deque[Act] = deque()

    def act(self, act: Act) -> None:
        """Steer or stop."""
        if isinstance(act.what, Stop):
            self.tickets.append(self.run.cancel(act.what))
        else:
            words = f"{act.what} {len(self.said)}"
            self.said.append((act.what, self.run.steer(words, when=act.what)))

    def plan(self, acts: Sequence[Act]) -> None:
        """Do each when its moment comes."""
        began = self.loop.steps
        self.by_steps.extend(sorted((act for act in acts if isinstance(act.at, int)), key=lambda act: act.at))

        def look(step: int) -> None:
            while self.by_steps and step - began >= self.by_steps[0].at:
                self.act(self.by_steps.popleft())

        self.loop.before_step = look
        for act in acts:
            if isinstance(act.at, float):
                self.loop.call_later(act.at, self.act, act)

    def end(self) -> None:
        """Do what the run has not lived to see."""
        self.loop.before_step = None
        while self.by_steps:
            self.act(self.by_steps.popleft())

    def in_order(self) -> None:
        """Within a kind the order is kept, and nothing is heard after what was told undelivered."""
        for kinds in ({"next", "now"}, {"idle"}):
            told = [receipt.delivery for when, receipt in self.said if when in kinds]
            heard = [to.n or 0 for to in told if to is not None and to.delivered]
            assert heard == sorted(heard)
            assert [to is not None and to.delivered for to in told] == sorted(
                (to is not None and to.delivered for to in told), reverse=True
            )


async def play(loop: VirtualLoop, replies: Sequence[ReplyName], acts: Sequence[Act], *, hooked: bool) -> None:
    """Play one interleaving, and look at what is left of it."""
    model = Scripted(replies)
    agent = Agent(model, tools=[work], tool_grace=1)
    if hooked:
        for name in ("before_model", "message_added", "after_tool"):
            agent.on(name, slow_hook)
    run = agent.start("go")
    stage = Stage(loop, run)
    async with run:
        stage.plan(acts)
        await run.outcome()
    await anyio.sleep(100)  # all that was planned has been done, and who was stubborn has let go
    stage.end()
    assert len(stage.said) + len(stage.tickets) == len(acts)
    await steered(run, [receipt for _, receipt in stage.said])
    stage.in_order()
    assert all(ticket.report is not None for ticket in stage.tickets)
    assert len({repr(ticket.report) for ticket in stage.tickets}) <= 1
    assert model.live == 0
    assert asyncio.all_tasks(loop) == {asyncio.current_task()}


@pytest.mark.timeout(240)  # three seconds, but a busy machine and coverage take their share
@settings(max_examples=1_000, deadline=None)
@given(
    replies=st.lists(st.sampled_from(REPLIES), max_size=5),
    steers=st.lists(STEERS, min_size=1, max_size=6),
    stops=st.lists(CANCELS, max_size=2),
    hooked=st.booleans(),
)
def test_in_a_thousand_interleavings_each_message_is_heard_once_or_told_undelivered(
    replies: list[ReplyName], steers: list[Act], stops: list[Act], *, hooked: bool
) -> None:
    """In order, in the history as it was told, with whatever stops come between; and nothing is left."""
    loop = VirtualLoop()
    run_virtual(lambda: play(loop, replies, [*steers, *stops], hooked=hooked), loop=loop)
