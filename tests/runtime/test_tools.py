"""Tools: what a call gives, in what order and how many at once."""

from collections.abc import AsyncIterator
from threading import current_thread

import anyio
import pydantic
import pytest

from andon import Agent, Call, Outcome, ToolContext, ToolError, tool
from andon.core.items import ToolEnded, ToolProgress, ToolStarted
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole


async def used(made: object, *calls: Call, concurrency: int | None = None) -> Outcome:
    """Run one round of calls of a tool."""
    model = ScriptedModel(list(calls) or [Call("work")], "Done.")
    agent = Agent(model, tools=[made], tool_concurrency=concurrency)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    async with agent.start("go") as run:
        return await whole(run)


def results(outcome: Outcome) -> list[tuple[str, str]]:
    """State and content of the results of the round."""
    return [(result.state.value, result.content) for result in outcome.messages[2].results]


class Colour(pydantic.BaseModel):
    """A colour."""

    red: int
    name: str | None = None


@virtual
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("words", "words"),
        (7, "7"),
        (None, "null"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Colour(red=1), '{"red":1,"name":null}'),
        ([Colour(red=1, name="r")], '[{"red":1,"name":"r"}]'),
        (float("nan"), '"NaN"'),
    ],
)
async def test_a_result_is_written_as_words_or_json(value: object, content: str) -> None:
    """Words stay words, all else is JSON."""

    @tool
    async def work() -> object:
        """Work."""
        return value

    assert results(await used(work)) == [("completed", content)]


@virtual
async def test_a_result_that_is_no_json_fails_and_says_so() -> None:
    """What it returned, and what to return instead."""

    @tool
    async def work() -> object:
        """Work."""
        return object()

    [(state, content)] = results(await used(work))
    assert state == "failed"
    assert "work returned a object, which is not JSON" in content
    assert content.endswith("; return str, dict, list or a model")


@virtual
@pytest.mark.parametrize(
    ("error", "content"),
    [(ToolError("no seats left"), "no seats left"), (ValueError("bad date"), "ValueError: bad date")],
)
async def test_a_tool_that_fails_tells_the_model(error: Exception, content: str) -> None:
    """Its own error word for word, any other with its name; the run goes on."""

    @tool
    async def work() -> str:
        """Work."""
        raise error

    outcome = await used(work)
    assert results(outcome) == [("failed", content)]
    assert outcome.text == "Done."


@virtual
async def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    """The model may choose again."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    assert results(await used(work, Call("wrok"))) == [
        ("failed", "There is no tool 'wrok'. The tools are: work.")
    ]
    outcome = await Agent(ScriptedModel(Call("wrok"), "Done.")).run("go")
    assert results(outcome) == [("failed", "There is no tool 'wrok'. The tools are: none.")]


@virtual
async def test_results_come_in_the_order_of_the_calls() -> None:
    """Whatever order they end in; the items come in the order of the ends."""
    gates = [Gate(f"{n}") for n in range(3)]

    @tool
    async def work(n: int) -> int:
        """Work."""
        await gates[n]
        if n:
            gates[n - 1].open()
        return n

    gates[2].open()
    model = ScriptedModel([Call("work", {"n": n}, f"c{n}") for n in range(3)], "Done.")
    async with Agent(model, tools=[work]).start("go") as run:
        outcome = await whole(run)
        ended = [event.call_id async for event in run if isinstance(event, ToolEnded)]
    assert [result.content for result in outcome.messages[2].results] == ["0", "1", "2"]
    assert ended == ["c2", "c1", "c0"]


@virtual
@pytest.mark.parametrize(("bound", "most"), [(None, 6), (2, 2), (1, 1)])
async def test_tools_run_beside_each_other_up_to_a_bound(bound: int | None, most: int) -> None:
    """None is no bound."""
    live: list[int] = [0, 0]

    @tool
    async def work() -> str:
        """Work."""
        live[0] += 1
        live[1] = max(live)
        await anyio.sleep(1)
        live[0] -= 1
        return "done"

    outcome = await used(work, *[Call("work")] * 6, concurrency=bound)
    assert results(outcome) == [("completed", "done")] * 6
    assert live == [0, most]


@virtual
async def test_a_round_with_a_sequential_tool_goes_in_turn() -> None:
    """All of it: nothing runs beside such a tool."""
    log: list[str] = []

    async def note(name: str) -> str:
        log.append(f"+{name}")
        await anyio.sleep(1)
        log.append(f"-{name}")
        return name

    @tool
    async def plain() -> str:
        """Work."""
        return await note("plain")

    @tool(sequential=True)
    async def alone() -> str:
        """Work alone."""
        return await note("alone")

    model = ScriptedModel([Call("plain"), Call("alone"), Call("plain")], "Done.")
    await Agent(model, tools=[plain, alone]).run("go")
    assert log == ["+plain", "-plain", "+alone", "-alone", "+plain", "-plain"]


@virtual
async def test_a_streaming_tool_shows_progress_and_its_last_value_is_the_result() -> None:
    """Readers see each value as it comes."""

    @tool
    async def work() -> AsyncIterator[object]:
        """Stream."""
        yield "looking"
        yield {"found": 3}

    model = ScriptedModel(Call("work", id="c1"), "Done.")
    async with Agent(model, tools=[work]).start("go") as run:
        outcome = await whole(run)
        shown = [(e.call_id, e.value) async for e in run if isinstance(e, ToolProgress)]
    assert shown == [("c1", "looking"), ("c1", {"found": 3})]
    assert results(outcome) == [("completed", '{"found":3}')]


@virtual
async def test_a_streaming_tool_that_gives_nothing_gives_null() -> None:
    """And one that fails half-way fails."""

    @tool
    async def work(*, fail: bool = False) -> AsyncIterator[str]:
        """Stream."""
        if fail:
            yield "half"
            msg = "broken"
            raise ToolError(msg)

    outcome = await used(work, Call("work"), Call("work", {"fail": True}))
    assert results(outcome) == [("completed", "null"), ("failed", "broken")]


async def test_a_plain_function_runs_in_a_thread_and_may_tell_its_progress() -> None:
    """The loop is not blocked, and the thread is a daemon."""
    threads: list[tuple[str, bool]] = []

    @tool
    def work(context: ToolContext, name: str) -> str:
        """Work."""
        thread = current_thread()
        threads.append((thread.name, thread.daemon))
        context.progress(f"half of {name}")
        return f"done {name}"

    model = ScriptedModel([Call("work", {"name": "a"}), Call("work", {"name": "b"})], "Done.")
    async with Agent(model, tools=[work]).start("go") as run:
        outcome = await whole(run)
        shown = {e.value async for e in run if isinstance(e, ToolProgress)}
    assert threads == [("andon-tool", True)] * 2
    assert shown == {"half of a", "half of b"}
    assert results(outcome) == [("completed", "done a"), ("completed", "done b")]


@pytest.mark.parametrize("error", [StopIteration("x"), SystemExit(3), KeyboardInterrupt("x"), OSError("x")])
async def test_whatever_a_thread_raises_is_its_own_affair(error: BaseException) -> None:
    """Not even an exit ends the program."""

    @tool
    def work() -> str:
        """Work."""
        raise error

    [(state, content)] = results(await used(work))
    assert state == "failed"
    assert type(error).__name__ in content


@virtual
async def test_a_tool_knows_its_call() -> None:
    """The run, the tool and the call, which is a stable key."""
    known: list[tuple[str, str, str]] = []

    @tool(name="other_name")
    async def work(context: ToolContext) -> str:
        """Work."""
        known.append((context.tool, context.call_id, context.run_id))
        return "done"

    async with Agent(ScriptedModel(Call("other_name", id="c1"), "Done."), tools=[work]).start("go") as run:
        await whole(run)
    assert known == [("other_name", "c1", run.id)]


@virtual
async def test_a_tool_that_cancels_itself_fails() -> None:
    """Nobody asked for a stop, so the run goes on."""

    @tool
    async def work() -> str:
        """Work."""
        raise anyio.get_cancelled_exc_class()

    [(state, content)] = results(await used(work))
    assert (state, content.partition(":")[0]) == ("failed", "CancelledError")


@virtual
async def test_the_intent_is_written_before_the_tool_runs() -> None:
    """A crash in between leaves a trace."""
    seen: list[bool] = []

    @tool
    async def work() -> str:
        """Work."""
        items = run._record.events  # pyright: ignore[reportPrivateUsage]
        seen.append(any(isinstance(item, ToolStarted) and item.call_id == "c1" for item in items))
        return "done"

    run = Agent(ScriptedModel(Call("work", id="c1"), "Done."), tools=[work]).start("go")
    await run.outcome()
    assert seen == [True]


async def test_a_tool_is_still_the_function_it_was_made_of() -> None:
    """Call it in a test as you would call any function."""

    @tool
    async def double(n: int) -> int:
        """Double."""
        return 2 * n

    assert await double(4) == 8
    assert repr(double) == "<Tool double (async)>"
    marked = tool(finish=True, sequential=True, idempotent=True, name="marked")(lambda: "x")
    assert repr(marked) == "<Tool marked (thread, finish, idempotent, sequential)>"
