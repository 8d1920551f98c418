"""A turn loop inside a tool is left with its run, and goes on with it; what ends the program passes it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
import pytest

from andon import Agent, Call, Outcome, Point, Preempt, Stop, ToolContext, Turn, TurnLoop, tool
from andon.core.items import Event
from andon.core.messages import ResultState
from andon.core.stop import Where
from andon.errors import Interrupted
from andon.runtime.isolate import run_to_end
from andon.runtime.nested import Suspended
from andon.runtime.session import Session
from andon.runtime.turn import Exit, TurnView
from andon.testing import Gate, Hang, Reply, ScriptedModel, virtual
from tests.answers import answered
from tests.belt import Belt
from tests.looped import asking
from tests.stores import MemoryStore
from tests.whole import whole


class Inside:
    """A run whose tool runs a turn loop over two items, in one `way` or another."""

    def __init__(self, *replies: Reply, tools: Sequence[Any] = (), way: str = "run", **options: Any) -> None:  # noqa: ANN401 — the loop's own
        self.model = ScriptedModel(*replies, name="inner")
        self.inner = Agent(self.model, tools=tools, name="inner")
        self.options = options
        self.belts: list[Belt] = []
        self.after: list[str] = []
        self.way = way

        @tool
        async def work() -> str:
            """Work in turns."""
            belt = Belt(**self.options)
            belt.agent = self.inner
            self.belts.append(belt)
            belt.loop.push("a")
            belt.loop.push("b")
            await self.go(belt.loop)
            self.after.append("the tool went on")
            return " and ".join(belt.consumed)

        self.outer_model = ScriptedModel(Call("work"), "All done.", name="outer")
        self.agent = Agent(self.outer_model, tools=[work], name="outer")

    async def go(self, loop: TurnLoop[str]) -> None:
        """Run the loop until it has nothing more to do."""
        if self.way == "run":
            loop.stop(when_idle_for=1)
            await loop.run()
            return
        async with loop:
            if self.way == "wait":
                loop.stop(when_idle_for=1)
                await loop.wait()

    async def exit(self) -> Exit[str]:
        """Give how the first loop ended."""
        return await self.belts[0].loop.wait()


async def waits_for_the_answer(turn: TurnView[str], events: AsyncGenerator[Event]) -> None:
    """Watch as most do: read all, in a task group, and ask for the outcome there."""
    async with asyncio.TaskGroup() as group:
        group.create_task(drain(events))
        assert turn.run is not None
        await turn.run.outcome()


async def drain(events: AsyncGenerator[Event]) -> None:
    """Read all events."""
    async for _ in events:
        pass


@pytest.mark.parametrize("way", ["run", "block", "wait"])
@pytest.mark.parametrize("watch", [{}, {"on_events": None}, {"on_events": waits_for_the_answer}])
def test_a_question_inside_a_loop_pauses_the_run_around_it(way: str, watch: dict[str, Any]) -> None:
    """The tool is left, too; with the answer it runs again, and its turns go on from where they were."""

    @virtual
    async def asked() -> None:
        log: list[object] = []
        inside = Inside("One.", Call("ask"), "Two.", tools=[asking(log=log)], way=way, **watch)
        outcome = await inside.agent.run("go")
        assert (outcome.stop_reason, inside.after) == ("interrupt", [])
        exit_ = await inside.exit()
        assert isinstance(exit_.reason, BaseException)
        assert (exit_.interrupted, exit_.failed, exit_.unhandled) == (("b",), (), ())
        assert inside.belts[0].turns == ["1 began", "1 completed", "2 began", "2 interrupted"]

        ended = await answered(inside.agent, outcome, "yes")
        assert (ended.stop_reason, ended.message.text) == ("end_turn", "All done.")
        assert (log, inside.after, len(inside.model.requests)) == (["yes"], ["the tool went on"], 3)
        assert inside.belts[1].turns == ["1 began", "1 completed", "2 began", "2 completed"]

    asked()


@pytest.mark.parametrize("way", ["run", "block", "wait"])
def test_a_stop_of_the_run_around_it_leaves_the_loop_for_a_resume(way: str) -> None:
    """At a safe point inside the turn: no later turn begins, and the resumed run does nothing twice."""

    @virtual
    async def stopped() -> None:
        gate, worked = Gate("tool"), list[str]()

        @tool
        async def pay() -> str:
            """Pay, which must never be done twice."""
            await gate
            worked.append("paid")
            return "paid"

        inside = Inside([Call("pay")], "One.", "Two.", tools=[pay], way=way)
        async with inside.agent.start("go") as run:
            await gate.reached()
            run.cancel(Stop.at(Point.ANY, recursive=True))
            gate.open()
            outcome = await whole(run)
        assert (outcome.stop_reason, inside.after, worked) == ("cancelled", [], ["paid"])
        exit_ = await inside.exit()
        assert isinstance(exit_.reason, Suspended)
        assert exit_.reason.where is Where.POINT_TOOLS
        assert (exit_.interrupted, exit_.failed, exit_.unhandled) == (("a",), (), ("b",))
        assert inside.belts[0].turns == ["1 began", "1 stopped"]
        ended = await resumed(inside, outcome)
        assert (ended.stop_reason, worked, len(inside.model.requests)) == ("end_turn", ["paid"], 3)
        assert inside.belts[1].consumed == ["a", "b"]

    stopped()


async def resumed(inside: Inside, outcome: Outcome) -> Outcome:
    """Go on through JSON, as another process would."""
    assert outcome.checkpoint is not None
    async with inside.agent.start_from(outcome.checkpoint.to_json()) as run:
        return await whole(run)


@virtual
async def test_a_loop_that_is_left_with_its_run_leaves_its_own_checkpoint_alone() -> None:
    """The tool will run again from its top: what it pushes then must not be there a second time."""
    store = MemoryStore()
    store.data["id"] = b""
    inside = Inside(Call("ask"), tools=[asking()], store=store, checkpoint_id="id")
    outcome = await inside.agent.run("go")
    assert outcome.stop_reason == "interrupt"
    exit_ = await inside.exit()
    assert (exit_.checkpoint_attempted, exit_.checkpoint_error, store.data) == (False, None, {"id": b""})


@virtual
async def test_now_upon_the_run_around_a_loop_cuts_the_loop() -> None:
    """Its exit names the cancellation of its task; the tool does not go on."""
    gate = Gate("model")
    inside = Inside([gate])
    async with inside.agent.start("go") as run:
        await gate.reached()
        run.cancel(Stop.now())
        outcome = await whole(run)
    assert (outcome.stop_reason, inside.after) == ("cancelled", [])
    exit_ = await inside.exit()
    assert isinstance(exit_.reason, asyncio.CancelledError)
    assert (exit_.failed, exit_.unhandled) == (("a",), ("b",))
    assert inside.belts[0].turns == ["1 began", "1 failed"]
    inside.model.script("One.", "Two.")
    assert (await resumed(inside, outcome)).stop_reason == "end_turn"


@pytest.mark.parametrize("name", ["gen_input", "prepare_agent"])
def test_a_question_of_a_callback_pauses_the_run_around_its_loop(name: str) -> None:
    """It asks in the name of the tool that the loop is in; its items wait again."""

    @virtual
    async def asked() -> None:
        contexts, belts = list[ToolContext](), list[Belt]()

        async def ask(*given: Any) -> object:  # noqa: ANN401 — whatever a callback is given
            assert await contexts[-1].interrupt("go on?") == "yes"
            return getattr(belts[-1], {"gen_input": "plan", "prepare_agent": "prepare"}[name])(*given)

        options: dict[str, Any] = {name: ask}

        @tool
        async def work(ctx: ToolContext) -> str:
            """Work in turns."""
            contexts.append(ctx)
            belts.append(Belt(**options))
            belts[-1].loop.push("a")
            async with belts[-1].loop:
                pass
            return "worked"

        agent = Agent(ScriptedModel(Call("work"), "All done."), tools=[work])
        outcome = await agent.run("go")
        assert outcome.stop_reason == "interrupt"
        exit_ = await belts[0].loop.wait()
        assert (exit_.unhandled, belts[0].turns) == (("a",), ["1 began", "1 abandoned"])
        assert (await answered(agent, outcome, "yes")).stop_reason == "end_turn"
        assert belts[1].consumed == ["a"]

    asked()


@virtual
async def test_a_session_inside_a_tool_is_left_with_the_run_around_it() -> None:
    """And is spoken to again when that goes on."""
    inner = Agent(ScriptedModel(Call("ask"), "Asked."), tools=[asking()], name="inner")
    chats: list[Session] = []

    @tool
    async def work() -> str:
        """Talk."""
        chats.append(Session(inner))
        async with chats[-1] as chat:
            chat.push("first")
        return chat.messages[-1].text

    agent = Agent(ScriptedModel(Call("work"), "All done."), tools=[work])
    outcome = await agent.run("go")
    assert outcome.stop_reason == "interrupt"
    ended = await answered(agent, outcome, "yes")
    assert [one.content for message in ended.messages for one in message.results] == ["Asked."]


class BlockError(Exception):
    """The block's own."""


@virtual
async def test_an_error_of_the_block_goes_before_a_run_that_is_left() -> None:
    """As with a run: whoever leaves a block with an error says so, and the tool has failed."""

    @tool
    async def work() -> None:
        """Fail beside a loop."""
        belt = Belt()
        belt.agent = Agent(ScriptedModel(Call("ask")), tools=[asking()], name="inner")
        belt.loop.push("a")
        await in_a_block(belt, fails=True)

    outcome = await Agent(ScriptedModel(Call("work"), "Done."), tools=[work]).run("go")
    results = [one for message in outcome.messages for one in message.results]
    assert [(one.state, one.content) for one in results] == [(ResultState.FAILED, "BlockError: ")]


# What ends the program


def leave_plain(*_: object) -> Turn[str]:
    """Leave the program in a plain function."""
    raise SystemExit(3)


async def leave_async(*_: object) -> Turn[str]:
    """Leave it in an async one."""
    raise SystemExit(3)


async def leave_in_a_group(*_: object) -> None:
    """Leave it in the midst of a task group."""
    async with anyio.create_task_group():
        raise SystemExit(3)


LEAVING: list[Callable[..., Any]] = [leave_plain, leave_async, leave_in_a_group]


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("name", ["gen_input", "prepare_agent", "on_events"])
def test_what_ends_the_program_passes_the_loop(name: str, leave: Callable[..., Any]) -> None:
    """Whoever runs it gets it, in the task and around the block; the exit is there all the same."""

    @virtual
    async def left() -> None:
        options: dict[str, Any] = {name: leave}
        for block in (False, True):
            belt = Belt([Hang()], **options)
            belt.loop.push("a")
            belt.loop.push("b")
            with pytest.raises((SystemExit, BaseExceptionGroup)) as told:
                await (in_a_block(belt) if block else belt.loop.run())
            found = told.value if isinstance(told.value, SystemExit) else told.value.exceptions[0]
            assert isinstance(found, SystemExit)
            exit_ = await belt.loop.wait()
            assert exit_.reason is told.value
            assert [*exit_.failed, *exit_.unhandled] == ["a", "b"]
            assert belt.model.live == 0
            assert len(belt.turns) == 2

    left()


async def in_a_block(belt: Belt, *, fails: bool = False) -> None:
    """Run it beside a block that waits for its end, and may fail then."""
    async with belt.loop:
        await belt.loop.wait()
        if fails:
            raise BlockError


@virtual
async def test_what_ends_the_program_goes_before_an_error_of_the_block() -> None:
    """As in a task group."""
    belt = Belt(gen_input=leave_async)
    belt.loop.push("a")
    with pytest.raises(SystemExit):
        await in_a_block(belt, fails=True)


def test_a_keyboard_interrupt_in_a_callback_reaches_whoever_runs_the_event_loop() -> None:
    """The exit names it."""

    def interrupt(*_: object) -> Turn[str]:
        raise KeyboardInterrupt

    async def main() -> None:
        await in_a_block(belt)

    belt = Belt(gen_input=interrupt)
    belt.loop.push("a")
    with pytest.raises(KeyboardInterrupt):
        run_to_end(main)
    exit_ = asyncio.run(belt.loop.wait())
    assert isinstance(exit_.reason, KeyboardInterrupt)
    assert (exit_.unhandled, belt.turns) == (("a",), ["1 began", "1 abandoned"])


@virtual
async def test_an_interrupt_without_a_run_around_it_is_the_reason_of_the_exit() -> None:
    """Nothing is raised: it is the end of the loop, which says whom it waits for."""
    belt = Belt(Call("ask"), tools=[asking()])
    belt.loop.push("a")
    belt.loop.push("b", preempt=Preempt(Point.ANY))
    exit_ = await belt.loop.run()
    assert isinstance(exit_.reason, Interrupted)
    assert exit_.interrupted == ("a",)
