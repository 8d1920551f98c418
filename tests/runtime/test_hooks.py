"""Hooks: seven moments, in order; bounded, never cut, and never silent about their errors."""

import asyncio
from typing import Any

import anyio
import pytest

from andon import Agent, Call, StopResult, tool
from andon.core.stop import Where
from andon.errors import UserError
from andon.runtime.hooks import NAMES, Moment
from andon.testing import Gate, ScriptedModel, virtual
from tests.whole import whole


@tool
async def work() -> str:
    """Work."""
    return "done"


def listening(agent: Agent, *names: str) -> list[str]:
    """Write down the moments of an agent."""
    log: list[str] = []

    def note(moment: Moment) -> None:
        log.append(moment.name + (" cut" if moment.cut else ""))

    for name in names or NAMES:
        agent.on(name, note)
    return log


@virtual
async def test_all_seven_moments_of_a_whole_run() -> None:
    """Each when it comes."""
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    log = listening(agent)
    async with agent.start("go") as run:
        await whole(run)
    assert log == [
        "run_started",
        "message_added",
        "before_model",
        "message_added",
        "after_model",
        "before_tool",
        "after_tool",
        "message_added",
        "before_model",
        "message_added",
        "after_model",
        "run_ended",
    ]


@virtual
async def test_a_moment_says_what_it_is_about() -> None:
    """The request, the message, the call, the result, the outcome: and the run with its verbs."""
    seen: dict[str, Moment] = {}
    agent = Agent(ScriptedModel(Call("work", id="c1"), "Done."), tools=[work])

    def keep(moment: Moment) -> None:
        seen.setdefault(moment.name, moment)

    for name in NAMES:
        agent.on(name, keep)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert all(moment.run is run for moment in seen.values())
    request, call, result = seen["before_model"].request, seen["before_tool"].call, seen["after_tool"].result
    assert request is not None
    assert [message.text for message in request.messages] == ["go"]
    assert seen["message_added"].message == outcome.messages[0]
    assert seen["after_model"].message == outcome.messages[1]
    assert call == outcome.messages[1].calls[0] == seen["after_tool"].call
    assert result == outcome.messages[2].results[0]
    assert seen["run_ended"].outcome is not None
    assert seen["run_ended"].outcome.messages == outcome.messages


@virtual
async def test_before_hooks_go_in_order_and_after_hooks_in_reverse() -> None:
    """As brackets close; sync and async ones alike."""
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    log: list[str] = []

    @agent.on("before_tool")
    def first(_: Moment) -> None:
        log.append("before 1")

    @agent.on("before_tool")
    async def second(_: Moment) -> None:
        await anyio.sleep(1)
        log.append("before 2")

    @agent.on("after_tool")
    async def third(_: Moment) -> None:
        await anyio.sleep(1)
        log.append("after 1")

    @agent.on("after_tool")
    def fourth(_: Moment) -> None:
        log.append("after 2")

    await agent.run("go")
    assert log == ["before 1", "before 2", "after 2", "after 1"]


@virtual
async def test_before_tool_may_refuse_and_its_words_become_the_result() -> None:
    """The tool does not run, later hooks are not asked, after-hooks are told."""
    began: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        began.append("pay")
        return "paid"

    agent = Agent(ScriptedModel([Call("pay"), Call("work")], "Sorry."), tools=[pay, work])
    log = listening(agent, "after_tool")

    @agent.on("before_tool")
    async def refuse(moment: Moment) -> str | None:
        assert moment.call is not None
        return "Not allowed." if moment.call.name == "pay" else None

    @agent.on("before_tool")
    def later(moment: Moment) -> None:
        assert moment.call is not None
        began.append(f"asked about {moment.call.name}")

    async with agent.start("go") as run:
        outcome = await whole(run)
    assert [(r.state.value, r.content) for r in outcome.messages[2].results] == [
        ("failed", "Not allowed."),
        ("completed", "done"),
    ]
    assert began == ["asked about work"]
    assert log == ["after_tool"] * 2


@virtual
@pytest.mark.parametrize("name", [name for name in NAMES if name != "run_ended"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_error_in_a_hook_ends_the_run_as_an_error(name: str, kind: str) -> None:
    """With a history that can be sent; the error names the hook."""
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    agent.on(name, broken if kind == "sync" else broken_later)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.stop_reason == "error"
    assert outcome.error == f"HookError: hook '{name}' failed with OSError: no"
    assert outcome.messages[0].text == "go"


@virtual
async def test_an_error_in_a_tools_hook_lets_the_other_tools_end() -> None:
    """All of the round are waited for, and keep their results."""
    gate = Gate("tool")

    @tool
    async def slow() -> str:
        """Wait."""
        await gate
        return "done"

    def fail(moment: Moment) -> None:
        assert moment.call is not None
        if moment.call.id == "bad":
            gate.open()
            broken(moment)

    agent = Agent(ScriptedModel([Call("slow", id="good"), Call("slow", id="bad")]), tools=[slow])
    agent.on("before_tool", fail)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.error == "HookError: hook 'before_tool' failed with OSError: no"
    assert [r.state.value for r in outcome.messages[2].results] == ["completed", "not_started"]


@virtual
@pytest.mark.parametrize("name", NAMES)
async def test_a_hook_that_raises_a_cancellation_of_its_own_has_failed(name: str) -> None:
    """Nobody cancelled the run, so it does not say so."""

    def cancelled(_: Moment) -> None:
        raise asyncio.CancelledError

    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    agent.on(name, cancelled)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.error is not None
    assert outcome.error.startswith(f"HookError: hook '{name}' failed with CancelledError")
    assert outcome.cancelled is None


def broken(_: Moment) -> None:
    """Fail."""
    msg = "no"
    raise OSError(msg)


async def broken_later(moment: Moment) -> None:
    """Fail, after a while."""
    await anyio.sleep(1)
    broken(moment)


@virtual
async def test_an_error_at_the_very_end_is_told_too() -> None:
    """The answer is there, and the outcome says that a hook failed."""
    agent = Agent(ScriptedModel("Done."))
    agent.on("run_ended", broken)
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert (outcome.stop_reason, outcome.text) == ("error", "Done.")


@virtual
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hook", [broken, broken_later])
async def test_an_error_in_a_safe_hook_does_not_matter(name: str, hook: Any) -> None:  # noqa: ANN401
    """The run goes on, and the next hook is called."""
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    agent.on(name, hook, safe=True)
    log = listening(agent, name)
    outcome = await agent.run("go")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")
    assert log


@virtual
async def test_what_was_announced_is_closed_with_cut() -> None:
    """after_model and after_tool are told when a stop cut what their before-hooks announced."""
    answer = Gate("model")
    agent = Agent(ScriptedModel(["Half", answer]))
    log = listening(agent)
    async with agent.start("go") as run:
        await answer.reached()
        run.cancel()
        await whole(run)
    assert log[2:] == [
        "before_model",
        "message_added",
        "after_model cut",
        "run_ended cut",
    ]

    gate = Gate("tool")

    @tool
    async def slow() -> str:
        """Wait."""
        await gate
        return "done"

    agent = Agent(ScriptedModel([Call("slow"), Call("slow")]), tools=[slow])
    log = listening(agent, "before_tool", "after_tool", "run_ended")
    async with agent.start("go") as run:
        await gate.reached(2)
        run.cancel()
        await whole(run)
    assert log == ["before_tool", "before_tool", "after_tool cut", "after_tool cut", "run_ended cut"]


@virtual
async def test_a_model_that_failed_is_closed_as_well() -> None:
    """The after-hook comes, and nothing was cut."""
    agent = Agent(ScriptedModel(OSError("broken")))
    log = listening(agent, "before_model", "after_model", "run_ended")
    await agent.run("go")
    assert log == ["before_model", "after_model", "run_ended"]


@virtual
@pytest.mark.parametrize(
    ("name", "where", "asked"),
    [
        ("run_started", Where.BEFORE_START, 0),
        ("before_model", Where.MODEL, 0),
        ("after_model", Where.POINT_MODEL, 1),
        ("before_tool", Where.TOOLS, 1),
        ("after_tool", Where.POINT_TOOLS, 1),
    ],
)
async def test_a_hook_may_cancel_the_run(name: str, where: Where, asked: int) -> None:
    """From wherever it is."""
    model = ScriptedModel(Call("work"), "never")
    agent = Agent(model, tools=[work])

    @agent.on(name)
    def stop(moment: Moment) -> None:
        moment.run.cancel(reason="a hook says so")

    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.cancelled is not None
    assert outcome.cancelled.result is StopResult.STOPPED
    assert outcome.cancelled.stopped_at is where
    assert len(model.requests) == asked


@virtual
async def test_a_tool_whose_hook_cancelled_the_run_is_not_started() -> None:
    """Between the hook and the tool there is a look at the stop."""
    agent = Agent(ScriptedModel([Call("work"), Call("work")]), tools=[work])

    def stop(moment: Moment) -> None:
        moment.run.cancel()

    agent.on("before_tool", stop)
    outcome = await agent.run("go")
    assert [r.state.value for r in outcome.messages[2].results] == ["not_started"] * 2


@virtual
async def test_a_hook_that_takes_too_long_is_an_error() -> None:
    """Or nothing at all, if it is safe."""
    for safe in (False, True):
        agent = Agent(ScriptedModel("Done."), hook_timeout=3)

        async def hang(_: Moment) -> None:
            await anyio.sleep_forever()

        agent.on("before_model", hang, safe=safe)
        began = anyio.current_time()
        outcome = await agent.run("go")
        assert anyio.current_time() - began == pytest.approx(3)
        if safe:
            assert outcome.text == "Done."
        else:
            assert outcome.error == (
                "HookError: hook 'before_model' failed with TimeoutError: it took longer than 3 s"
            )


@virtual
async def test_a_hook_that_swallows_its_timeout_is_left_alone() -> None:
    """The run goes on a second later."""
    gate = Gate("hook")

    async def stubborn(_: Moment) -> None:
        while not gate.opened:
            try:
                await gate
            except asyncio.CancelledError:
                continue

    agent = Agent(ScriptedModel("Done."), hook_timeout=3)
    agent.on("before_model", stubborn, safe=True)
    began = anyio.current_time()
    assert (await agent.run("go")).text == "Done."
    assert anyio.current_time() - began == pytest.approx(4)
    gate.open()


@virtual
async def test_a_hook_is_not_cut_by_a_stop() -> None:
    """It is waited for; then the stop takes effect."""
    gate, log = Gate("hook"), list[str]()

    async def slow(_: Moment) -> None:
        await gate
        log.append("whole")

    model = ScriptedModel("never")
    agent = Agent(model)
    agent.on("before_model", slow)
    async with agent.start("go") as run:
        await gate.reached()
        run.cancel()
        await anyio.sleep(5)
        assert not run.ended
        gate.open()
        outcome = await whole(run)
    assert log == ["whole"]
    assert model.requests == []
    assert outcome.stop_reason == "cancelled"


@virtual
async def test_messages_that_seal_the_history_reach_the_hooks() -> None:
    """Every message of the outcome was told, in order."""
    told: list[Any] = []
    gate = Gate("tool")

    @tool
    async def slow() -> str:
        """Wait."""
        await gate
        return "done"

    agent = Agent(ScriptedModel(Call("slow")), tools=[slow])

    def keep(moment: Moment) -> None:
        told.append(moment.message)

    agent.on("message_added", keep)
    async with agent.start("go") as run:
        await gate.reached()
        run.cancel()
        outcome = await whole(run)
    assert tuple(told) == outcome.messages


def test_a_moment_that_does_not_exist_is_refused() -> None:
    """With those there are."""
    with pytest.raises(UserError, match="there is no hook 'on_end': use one of run_started, before_model"):
        Agent(ScriptedModel()).on("on_end", broken)


@virtual
async def test_a_task_or_future_that_a_hook_gives_is_awaited() -> None:
    """It is as much a part of the hook as a coroutine."""
    agent = Agent(ScriptedModel(Call("work"), "Done."), tools=[work])
    refusal = asyncio.get_running_loop().create_future()
    log: list[str] = []

    async def slow() -> None:
        await anyio.sleep(1)
        log.append("slow")
        refusal.set_result("not today")

    @agent.on("run_started")
    def begin(_: Moment) -> object:
        return asyncio.get_running_loop().create_task(slow())

    @agent.on("before_model")
    def note(_: Moment) -> None:
        log.append("before_model")

    @agent.on("before_tool")
    def refuse(_: Moment) -> object:
        return refusal

    outcome = await agent.run("go")
    assert log == ["slow", "before_model", "before_model"]
    assert [result.content for result in outcome.messages[2].results] == ["not today"]


@virtual
async def test_a_future_that_a_hook_gives_is_bounded() -> None:
    """One that nobody settles ends the run as any hook that takes too long."""
    agent = Agent(ScriptedModel("Done."), hook_timeout=3)
    agent.on("run_started", never)
    outcome = await agent.run("go")
    assert outcome.error == "HookError: hook 'run_started' failed with TimeoutError: it took longer than 3 s"


def never(_: Moment) -> object:
    """Give a future that nobody settles."""
    return asyncio.get_running_loop().create_future()


@virtual
async def test_a_ticket_that_a_hook_gives_is_not_awaited() -> None:
    """It would wait for the end of the very run that waits for the hook."""
    agent = Agent(ScriptedModel(Call("work"), "never"), tools=[work])
    agent.on("before_tool", cancels)
    began = asyncio.get_running_loop().time()
    outcome = await agent.run("go")
    assert outcome.stop_reason == "cancelled"
    assert asyncio.get_running_loop().time() == began


def cancels(moment: Moment) -> object:
    """Cancel, and give the ticket, as a short lambda does."""
    return moment.run.cancel()
